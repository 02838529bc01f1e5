package judge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// world has the facts of a run against a correct service. Tests damage some of these facts.
type world struct {
	facts []history.Fact
	run   RunContext
	start time.Time
	last  int64 // latest ticket
}

const (
	testRun   = "run1"
	brokenURL = "http://receiver/broken" // answers with 5xx only
)

var second = time.Second

func newWorld() *world {
	w := &world{start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	w.run = RunContext{
		Run: testRun, TimeScale: new(1.0), MaxRuntime: 2 * time.Minute, MaxAttempts: 4, DeliveryTries: 3,
		Webhooks: []history.Webhook{
			{Tenant: 0, ID: "hook-0", Events: []string{"*"}},
			{Tenant: 1, ID: "hook-1", Events: []string{"job.succeeded", "job.failed"}},
		},
		Streamed: true, Whole: true,
		Collected: Collected{
			Asked:   map[Source]bool{Lists: true, Reports: true, Rows: true, Queue: true, Metrics: true},
			Rules:   []string{fenced},
			Missing: map[Source]string{},
		},
	}
	return w
}

type jobBuilder struct {
	w       *world
	id      string
	tenant  int
	ticket  int64
	now     time.Time
	row     history.Job
	sub     history.Submission
	log     []history.Event
	state   string
	code    string // failure code
	starts  time.Time
	reports []history.Report
}

func (w *world) add(f history.Fact) { w.facts = append(w.facts, f) }

func (w *world) end() time.Time { return w.start.Add(time.Hour) }

func (w *world) job(tenant int, kind string, options ...func(*jobBuilder)) *jobBuilder {
	w.last++
	w.run.Tickets = w.last
	t := &jobBuilder{w: w, id: fmt.Sprintf("job-%04d", w.last), tenant: tenant, ticket: w.last,
		now: w.start.Add(time.Duration(w.last%1000) * second)}
	t.row = history.Job{Keys: 1, Job: client.Job{
		Type: "EXECUTE", WorkKind: kind, Attempt: 1, MaxAttempts: 4, CreatedAt: t.now,
		CorrelationID: fmt.Sprintf("%s.%d", testRun, w.last), Definition: definitionOf(kind),
	}}
	for _, o := range options {
		o(t)
	}
	t.sub.Key, t.sub.Type, t.sub.WorkKind = fmt.Sprint("key-", w.last), t.row.Type, kind
	t.sub.ExecutionAt, t.sub.Batch = t.row.ExecutionAt, t.row.BatchID
	t.row.RunAt = t.now
	t.event("job.created", created)
	if t.row.ExecutionAt.IsZero() {
		t.event("job.queued", queued)
	} else {
		t.row.RunAt = t.row.ExecutionAt
	}
	t.try(false)
	return t
}

func deferred(ahead time.Duration) func(*jobBuilder) {
	return func(t *jobBuilder) {
		t.row.Type, t.row.ExecutionAt = "DEFERRED", t.now.Add(ahead)
	}
}

func emits(t *jobBuilder) { t.row.Type = emitEvent }

func autoRetry(t *jobBuilder)                 { t.sub.AutoRetry = true }
func inBatch(id string) func(*jobBuilder)     { return func(t *jobBuilder) { t.row.BatchID = id } }
func calledBack(url string) func(*jobBuilder) { return func(t *jobBuilder) { t.sub.Callback = url } }

func (t *jobBuilder) add(k history.Kind, at time.Time, f history.Fact) {
	f.Kind, f.At, f.Tenant, f.Job = k, at, t.tenant, t.id
	if f.Event == nil && f.Report == nil && (f.Delivery == nil || k == history.Received) {
		f.Ticket = t.ticket
	}
	t.w.add(f)
}

func (t *jobBuilder) try(replay bool) *jobBuilder {
	state := queued
	if !t.row.ExecutionAt.IsZero() {
		state = created
	}
	t.sub.Tries = append(t.sub.Tries, history.Answer{
		Sent: t.now.Add(-5 * time.Millisecond), Answered: t.now.Add(5 * time.Millisecond), Status: 202, Job: t.id, State: state,
		CreatedAt: t.row.CreatedAt, Location: "/v1/jobs/" + t.id, Replayed: replay, RequestID: "request",
	})
	return t
}

func (t *jobBuilder) scenario() history.Scenario {
	ms := int(cmp.Or(catalogue[t.row.WorkKind].duration, 150*second).Milliseconds())
	return history.Scenario{WorkKind: t.row.WorkKind, DurationMS: ms, ExpectedOutcome: expectedOutcome(t.row.WorkKind)}
}

func (t *jobBuilder) wait(d time.Duration) *jobBuilder {
	t.now = t.now.Add(d)
	return t
}

func (t *jobBuilder) event(name, next string) *jobBuilder {
	e := history.Event{
		ID: fmt.Sprintf("%s-event-%d", t.id, len(t.log)+1), Seq: len(t.log) + 1, Name: name, Prev: t.state, Next: next,
		Attempt: t.row.Attempt, At: t.now, Scenario: t.scenario(), Job: t.id,
	}
	if name == nameEmitted {
		e.Emitted = fmt.Sprintf("simulated %d", t.ticket)
	}
	if next == "" {
		e.Prev = ""
	} else {
		t.state, t.row.State, t.row.UpdatedAt = next, next, t.now
	}
	t.log = append(t.log, e)
	t.add(history.StoredEvent, t.w.end(), history.Fact{Event: &e})
	shown := e
	if endsAttempt(name) {
		shown = history.Event{Name: name, Attempt: e.Attempt, Status: statusOf(name, t.code), Scenario: e.Scenario}
	}
	t.add(history.Streamed, t.now.Add(20*time.Millisecond), history.Fact{Event: &shown})
	for _, hook := range t.w.run.Webhooks {
		if hook.Tenant == t.tenant && subscribed(hook.Events, name) {
			t.deliver(e, hook.ID, "", 204)
		}
	}
	if t.sub.Callback != "" && (next != "" || name == nameEmitted) {
		answers := []int{500, 200}
		if t.sub.Callback == brokenURL {
			answers = []int{500, 503, 500}
		}
		t.deliver(e, "", t.sub.Callback, answers...)
	}
	return t
}

func (t *jobBuilder) deliver(e history.Event, hook, url string, answers ...int) {
	d := history.Delivery{
		ID: fmt.Sprint(e.ID, "-to-", hook, url), Webhook: hook, URL: url, EventID: e.ID, EventName: e.Name, Seq: e.Seq,
		State: "DELIVERED", Attempts: len(answers),
	}
	if last := answers[len(answers)-1]; last >= 300 {
		d.State, d.Status, d.Error = "FAILED", last, "HTTP_5XX"
	}
	for _, status := range answers {
		d.Accepted += count(isSuccess(status))
	}
	shown := d
	shown.HasLog, shown.CreatedAt, shown.SettledAt = true, t.now, t.now.Add(time.Duration(len(answers))*100*time.Millisecond)
	t.add(history.StoredDeliver, t.w.end(), history.Fact{Delivery: &d})
	t.add(history.APIDelivery, t.w.end(), history.Fact{Delivery: &shown})
	for n, status := range answers {
		shown.Log = append(shown.Log, client.DeliveryAttempt{Number: n + 1, Status: status, DurationMS: 20})
		got := d
		got.State, got.Error, got.Attempts, got.Status, got.Body, got.After = "", "", 0, status, "digest of "+e.ID, 10*time.Millisecond
		got.JobStatus, got.Emitted, got.Scenario, got.WorkKind = statusOf(e.Name, t.code), e.Emitted, e.Scenario, e.WorkKind
		t.add(history.Received, t.now.Add(time.Duration(n+1)*100*time.Millisecond), history.Fact{Delivery: &got})
	}
}

func (t *jobBuilder) claim() *jobBuilder {
	if t.state == created {
		if t.now.Before(t.row.ExecutionAt) {
			t.now = t.row.ExecutionAt
		}
		t.event("job.queued", queued)
	}
	return t.wait(10*time.Millisecond).event("job.assigned", assigned)
}

func (t *jobBuilder) run() *jobBuilder {
	t.wait(10*time.Millisecond).event("job.running", running)
	t.starts, t.row.StartedAt = t.now, t.now
	return t
}

func (t *jobBuilder) loseLease() *jobBuilder {
	return t.wait(3*second).event("job.lease_expired", queued)
}

func (t *jobBuilder) ends(state, code string) *jobBuilder {
	if state != canceled {
		t.wait(catalogue[t.row.WorkKind].duration + 30*time.Millisecond)
	}
	t.code = code
	if t.row.Type == emitEvent && state == succeeded {
		t.event(nameEmitted, "")
	}
	t.event("job."+map[string]string{succeeded: "succeeded", failed: "failed", canceled: "canceled"}[state], state)
	t.row.FinishedAt, t.row.Outcome = t.now, outcomes[state]
	if state == failed && t.row.Attempt == t.row.MaxAttempts {
		t.event(nameExhausted, "")
	}
	r := history.Report{Attempt: t.row.Attempt, Outcome: outcomes[state], StartedAt: t.starts, FinishedAt: t.now, Failure: code,
		EventSeq: len(t.log), Events: slices.Clone(t.log)}
	if !t.starts.IsZero() {
		r.DurationMS = int(t.now.Sub(t.starts).Milliseconds())
	}
	if state == succeeded {
		r.ResultSize = new(catalogue[t.row.WorkKind].result)
	}
	t.reports = append(t.reports, r)
	return t
}

func (t *jobBuilder) success() *jobBuilder            { return t.claim().run().ends(succeeded, "") }
func (t *jobBuilder) failure(code string) *jobBuilder { return t.claim().run().ends(failed, code) }

func (t *jobBuilder) retried() *jobBuilder {
	t.row.Attempt++
	t.row.FinishedAt, t.row.StartedAt, t.starts, t.row.Outcome, t.code = time.Time{}, time.Time{}, time.Time{}, "", ""
	return t.event("job.retried", queued)
}

func (t *jobBuilder) requests(verb string, status int) *jobBuilder {
	a := &history.Answer{Verb: verb, Sent: t.now.Add(-5 * time.Millisecond), Status: status}
	if status == 200 {
		a.Job, a.State, a.Attempt, a.UpdatedAt = t.id, t.state, t.row.Attempt, t.row.UpdatedAt
	} else {
		a.Code = "RFA_JOB_CONFLICT"
	}
	t.add(history.Acted, t.now.Add(5*time.Millisecond), history.Fact{Action: a})
	return t
}

func (t *jobBuilder) polled() *jobBuilder {
	shown := t.shown()
	shown.Definition = definitionOf(shown.WorkKind)
	switch shown.State {
	case succeeded:
		shown.Result = &client.ResultInfo{SizeBytes: shown.Definition.PayloadSize, Checksum: &client.Checksum{Value: "ab"}}
	case failed:
		shown.Failure = documentOf(t.id, t.code, t.code != codeInternal)
	}
	t.add(history.Looked, t.now.Add(4*time.Millisecond), history.Fact{Sent: t.now.Add(2 * time.Millisecond), Shown: &shown})
	return t.wait(10 * time.Millisecond)
}

func definitionOf(kind string) *client.Definition {
	k := catalogue[kind]
	return &client.Definition{DurationMS: int(k.duration.Milliseconds()), ShouldFail: k.fails > 0, PayloadSize: k.result}
}

func (t *jobBuilder) shown() history.Job {
	j := history.Job{Job: t.row.Job}
	j.Definition = nil
	return j
}

func (t *jobBuilder) close() *jobBuilder {
	end := t.w.end()
	t.add(history.Submitted, t.now, history.Fact{Submission: &t.sub})
	t.add(history.ListedJob, end, history.Fact{Sent: end.Add(-second), Shown: new(t.shown())})
	row := t.row
	row.AutoRetry, row.ParamsDigest = t.sub.AutoRetry, t.sub.Params
	t.add(history.StoredJob, end, history.Fact{Shown: &row})
	for _, r := range t.reports {
		stored, api := r, r
		stored.Events, stored.ResultSize, api.EventSeq, api.Job = nil, nil, 0, t.id
		t.add(history.StoredReport, end, history.Fact{Report: &stored})
		t.add(history.APIReport, end, history.Fact{Report: &api})
	}
	return t
}
