package load

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// rank orders the states of an attempt. An update to a lower state is late and is ignored.
var rank = map[string]int{
	client.Created: 1, client.Queued: 2, client.Assigned: 3, client.Running: 4,
	client.Succeeded: 5, client.Failed: 5, client.Canceled: 5,
}

func isFinal(state string) bool { return rank[state] == rank[client.Succeeded] }

// jobs contains the jobs that may still change. Ended jobs are removed, to limit memory.
type jobs struct {
	// `streamed` is true if the run reads streams. A job is then removed only after the stream has shown the job's end. Otherwise a late
	// stream event would add the job again.
	streamed bool
	moved    func(from, to string)
	ended    func(*job) // called when a job is removed

	mu   sync.Mutex
	byID map[string]*job
}

// The field `ticket` is 0 until the response to the submission arrives. A stream event may arrive earlier.
type job struct {
	id       string
	ticket   int64
	tenant   int
	intended time.Time
	waits    time.Time // execution_at; zero if the job has none
	state    string
	attempt  int
	last     time.Time // time of the last update or poll

	autoRetry bool // auto_retry of the submission: the service retries temporary failures
	held      int  // number of callers that need the job; above 0, the job is not removed
	finished  bool
	streamed  bool // the stream has shown the end of this attempt
	changed   chan struct{}
}

func newJobs(streamed bool, moved func(from, to string), ended func(*job)) *jobs {
	return &jobs{streamed: streamed, moved: moved, ended: ended, byID: map[string]*job{}}
}

// withJob locks js and calls `fn` with the job. If `create` is true, it first adds a missing job. If no more updates are expected, it
// removes the job afterwards.
func (js *jobs) withJob(id string, create bool, fn func(*job)) {
	js.mu.Lock()
	defer js.mu.Unlock()
	j := js.byID[id]
	if j == nil && !create {
		return
	}
	if j == nil {
		j = &job{id: id, attempt: 1}
		js.byID[id] = j
	}
	fn(j)
	if j.ticket != 0 && js.over(j) && j.held == 0 {
		delete(js.byID, id)
		js.ended(j)
	}
}

func (js *jobs) over(j *job) bool { return j.finished && (j.streamed || !js.streamed) }

// accepted adds an accepted job, and calls `fill` to set the job's fields. If `hold` is true, the job is not removed before the call of
// release.
func (js *jobs) accepted(id, state string, hold bool, fill func(*job)) {
	js.withJob(id, true, func(j *job) {
		fill(j)
		if hold {
			j.held++
		}
		js.update(j, update{state: state, attempt: 1, at: time.Now()})
	})
}

func (js *jobs) release(id string) {
	js.withJob(id, true, func(j *job) { j.held-- })
}

type update struct {
	state   string
	attempt int
	at      time.Time
	// `retryable` is true for a failure after which the service retries a job with auto_retry.
	retryable bool
	streamed  bool
}

// apply updates a job. Only an update from a stream adds a missing job, because a response may be about a job that was removed.
func (js *jobs) apply(id string, n update) {
	js.withJob(id, n.streamed, func(j *job) { js.update(j, n) })
}

// exhausted records that the service will start no more attempts.
func (js *jobs) exhausted(id string) {
	js.withJob(id, false, func(j *job) { j.finished = isFinal(j.state) })
}

func (js *jobs) update(j *job, n update) {
	if n.streamed && n.attempt >= j.attempt {
		j.streamed = isFinal(n.state)
	}
	newer := n.attempt > j.attempt || n.attempt == j.attempt &&
		(rank[n.state] > rank[j.state] || n.state == client.Queued && j.state == client.Assigned)
	if !newer {
		return
	}
	if n.attempt > j.attempt && !n.streamed {
		j.streamed = false // the stream has not shown the end of the new attempt
	}
	js.moved(j.state, n.state)
	j.state, j.attempt, j.last = n.state, n.attempt, n.at
	j.finished = isFinal(n.state) && !(n.state == client.Failed && n.retryable && j.autoRetry)
	if j.changed != nil {
		close(j.changed)
		j.changed = nil
	}
}

// look returns the job's state and attempt, and a channel that is closed at the job's next update. The caller must have called `accepted`
// with `hold` true.
func (js *jobs) look(id string) (state string, attempt int, changed <-chan struct{}) {
	js.withJob(id, true, func(j *job) {
		if j.changed == nil {
			j.changed = make(chan struct{})
		}
		state, attempt, changed = j.state, j.attempt, j.changed
	})
	return state, attempt, changed
}

// silent returns at most `limit` unfinished jobs that had no update and no poll for the time `quiet`. It marks the returned jobs as polled,
// so the next call returns other jobs.
func (js *jobs) silent(quiet time.Duration, limit int) (list []job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	now := time.Now()
	for _, j := range js.byID {
		if len(list) < limit && j.ticket != 0 && !j.finished && now.Sub(j.last) >= quiet {
			j.last = now
			list = append(list, *j)
		}
	}
	return list
}

func (js *jobs) waiting(until time.Time) (list []job) {
	js.mu.Lock()
	defer js.mu.Unlock()
	for _, j := range js.byID {
		if !js.over(j) && !(j.state == client.Created && j.waits.After(until)) {
			list = append(list, *j)
		}
	}
	slices.SortFunc(list, func(a, b job) int { return cmp.Compare(a.ticket, b.ticket) })
	return list
}

// ends maps the stream's outcome events to an event name and a job state.
var ends = map[string]struct{ name, state string }{
	"job-succeeded": {"job.succeeded", client.Succeeded},
	"job-failed":    {"job.failed", client.Failed},
	"job-canceled":  {"job.canceled", client.Canceled},
}

// watch reads a tenant's stream and records its events. It calls `connected` once, after the first connection.
func (e *Engine) watch(ctx context.Context, a history.Account, connected func()) {
	last := ""
	var once sync.Once
	for ctx.Err() == nil {
		options := client.StreamOptions{LastEventID: last, OnConnect: func(id string) {
			last = id
			once.Do(connected)
		}}
		for m, err := range a.Client.Stream(ctx, options) {
			if err != nil {
				break // the outer loop opens a new stream, which continues after the last received event
			}
			if m.ID != "" {
				last = m.ID
			}
			e.streamed(a.Tenant, m)
		}
		_ = Sleep(ctx, longestBackoff/4)
	}
}

func (e *Engine) streamed(tenant int, m client.Message) {
	f := history.Fact{At: time.Now().UTC(), Kind: history.Streamed, Tenant: tenant}
	read := e.logged
	if m.IsOutcome() {
		read = e.ended
	}
	if err := read(m, &f); err != nil {
		f.Kind, f.Note = history.Forbidden, "a stream's message that cannot be read: "+err.Error()
	}
	e.o.History.Add(f)
}

func (e *Engine) ended(m client.Message, f *history.Fact) error {
	o, err := m.Outcome()
	if err != nil {
		return err
	}
	f.Event = &history.Event{Name: "batch.completed", Status: o.JobStatus, At: o.CompletedAt}
	if end, ofJob := ends[m.Name]; ofJob {
		f.Job, f.Event.Name, f.Event.Attempt, f.Event.Scenario = o.JobID, end.name, o.Attempt, history.ScenarioOf(o.Scenario)
		e.jobs.apply(o.JobID, update{state: end.state, attempt: o.Attempt, at: f.At, retryable: o.Retryable(), streamed: true})
	}
	return nil
}

func (e *Engine) logged(m client.Message, f *history.Fact) error {
	v, err := m.Event()
	if err != nil {
		return err
	}
	f.Job = v.JobID
	f.Event, err = history.EventOf(v)
	switch {
	case v.JobID == "": // an event of a batch or a webhook
	case v.NextState != "":
		e.jobs.apply(v.JobID, update{state: v.NextState, attempt: v.Attempt, at: f.At, streamed: true})
	case v.EventName == "job.retries_exhausted":
		e.jobs.exhausted(v.JobID)
	}
	return err
}

// readSlowly reads a stream with pauses and ignores the events, as a slow client does.
func (e *Engine) readSlowly(ctx context.Context, a history.Account, pause time.Duration) {
	for ctx.Err() == nil {
		for _, err := range a.Client.Stream(ctx, client.StreamOptions{}) {
			if err != nil || Sleep(ctx, pause) != nil {
				break
			}
		}
		_ = Sleep(ctx, longestBackoff)
	}
}
