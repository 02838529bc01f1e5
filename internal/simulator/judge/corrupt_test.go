package judge

import (
	"fmt"
	"slices"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	submitted      = history.Submitted
	listed         = history.ListedJob
	streams        = history.Streamed
	arrived        = history.Received
	storedEvent    = history.StoredEvent
	storedReport   = history.StoredReport
	storedJob      = history.StoredJob
	storedDelivery = history.StoredDeliver
	apiReport      = history.APIReport
	apiDelivery    = history.APIDelivery
)

func jobName(n int) string { return fmt.Sprintf("job-%04d", n) }

func (w *world) fact(k history.Kind, job int) history.Fact {
	return history.Fact{Kind: k, At: w.end(), Job: jobName(job), Tenant: w.find(history.StoredJob, job).Tenant}
}

type test = func(*history.Fact) bool

func passes(f *history.Fact, tests []test) bool {
	return !slices.ContainsFunc(tests, func(passes test) bool { return !passes(f) })
}

func (w *world) find(k history.Kind, job int, tests ...test) *history.Fact {
	for i := range w.facts {
		f := &w.facts[i]
		if f.Kind == k && (f.Job == jobName(job) || k == history.Submitted && f.Ticket == int64(job)) && passes(f, tests) {
			return f
		}
	}
	panic(fmt.Sprint("no fact ", k, " of job ", job))
}

func (w *world) drop(f *history.Fact) {
	for i := range w.facts {
		if &w.facts[i] == f {
			w.facts = slices.Delete(w.facts, i, i+1)
			return
		}
	}
}

func (w *world) dropAll(tests ...test) {
	w.facts = slices.DeleteFunc(w.facts, func(f history.Fact) bool { return passes(&f, tests) })
}

func about(job int) test {
	return func(f *history.Fact) bool { return f.Job == jobName(job) || job == 0 && f.Job == "" }
}

func not(excluded test) test { return func(f *history.Fact) bool { return !excluded(f) } }

func hasDelivery(f *history.Fact) bool { return f.Delivery != nil }

func named(name string) test {
	return func(f *history.Fact) bool {
		return f.Event != nil && f.Event.Name == name || f.Delivery != nil && f.Delivery.EventName == name
	}
}

func (w *world) again(k history.Kind, job int, tests ...test) *history.Fact {
	f := *w.find(k, job, tests...)
	if f.Report != nil {
		f.Report = new(*f.Report)
	}
	if f.Event != nil {
		f.Event = new(*f.Event)
	}
	if f.Delivery != nil {
		f.Delivery = new(*f.Delivery)
	}
	w.add(f)
	return &w.facts[len(w.facts)-1]
}

func (w *world) change(job int, fn func(f *history.Fact), tests ...test) {
	for i := range w.facts {
		if f := &w.facts[i]; about(job)(f) && passes(f, tests) {
			fn(f)
		}
	}
}

func of(kinds ...history.Kind) test {
	return func(f *history.Fact) bool { return slices.Contains(kinds, f.Kind) }
}

func (w *world) row(job int) *history.Job        { return w.find(storedJob, job).Shown }
func (w *world) sub(job int) *history.Submission { return w.find(submitted, job).Submission }
func (w *world) shown(job int) *history.Report   { return w.find(apiReport, job).Report }

func (w *world) event(job int, name string) *history.Event {
	return w.find(storedEvent, job, named(name)).Event
}

func (w *world) onStream(job int, name string) *history.Event {
	return w.find(streams, job, named(name)).Event
}

func (w *world) changeJob(job int, fn func(j *history.Job)) {
	w.change(job, func(f *history.Fact) { fn(f.Shown) }, of(storedJob, listed))
}

func (w *world) reports(job int, fn func(r *history.Report)) {
	w.change(job, func(f *history.Fact) { fn(f.Report) }, of(storedReport, apiReport))
}

func (w *world) refused() *history.Submission {
	for i := range w.facts {
		if s := w.facts[i].Submission; s != nil && s.WorkKind == payloadInvalid {
			return s
		}
	}
	panic("nothing was refused")
}

func twin(w *world, job int) {
	for _, f := range w.facts {
		if f.Job != jobName(job) || f.Kind == history.Submitted {
			continue
		}
		f.Job = "a-twin"
		if f.Shown != nil {
			f.Shown = new(*f.Shown)
			f.Shown.CreatedAt = f.Shown.CreatedAt.Add(-second)
		}
		w.add(f)
	}
}

func rename(w *world, job int, kind string) {
	w.change(job, func(f *history.Fact) {
		if f.Shown != nil {
			f.Shown.WorkKind, f.Shown.Definition = kind, nil
		}
		if f.Submission != nil {
			f.Submission.WorkKind = kind
		}
	})
}

func correlated(id string) func(w *world) {
	return func(w *world) { w.changeJob(plainJob, func(j *history.Job) { j.CorrelationID = id }) }
}

func failedWith(job int, code string) func(w *world) {
	return func(w *world) {
		w.reports(job, func(r *history.Report) { r.Failure = code })
		w.change(job, func(f *history.Fact) { f.Shown.Failure = documentOf(f.Job, code, code != codeInternal) }, of(history.Looked))
	}
}

func intruder(status int) func(w *world) {
	return func(w *world) { w.find(history.Intruded, plainJob).Action.Status = status }
}

func (w *world) typed(job int, name string) {
	w.changeJob(job, func(j *history.Job) { j.Type = name })
	w.sub(job).Type = name
}

func documentOf(job, code string, retryable bool) *client.Outcome {
	d := &client.Outcome{}
	status := statusOf("job.failed", code)
	text := fmt.Sprintf(`{"jobId":%q,"code":%q,"jobStatus":%q,"retryable":%t,"retryAfter":1}`, job, code, status, retryable)
	if err := d.UnmarshalJSON([]byte(text)); err != nil {
		panic(err)
	}
	return d
}
