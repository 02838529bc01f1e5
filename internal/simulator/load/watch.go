package load

import (
	"context"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// ends are the stream events with an outcome document (docs/reference/api.md, Watching).
var ends = map[string]struct{ name, state string }{
	"job-succeeded": {"job.succeeded", client.Succeeded},
	"job-failed":    {"job.failed", client.Failed},
	"job-canceled":  {"job.canceled", client.Canceled},
}

// watch records a tenant's first stream, from before its first job, and calls
// connected when it is open.
func (e *Engine) watch(ctx context.Context, a *account, connected func()) {
	last := ""
	var once sync.Once
	for ctx.Err() == nil {
		options := client.StreamOptions{LastEventID: last, OnConnect: func(id string) {
			last = id
			once.Do(connected)
		}}
		for m, err := range a.Client.Stream(ctx, options) {
			if err != nil {
				break // continue after the last event
			}
			if m.ID != "" {
				last = m.ID
			}
			e.streamed(a.Tenant, m)
		}
		_ = Sleep(ctx, longestBackoff/4)
	}
}

// streamed handles one message of a tenant's stream.
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

// ended reads the outcome of an attempt or of a batch.
func (e *Engine) ended(m client.Message, f *history.Fact) error {
	o, err := m.Outcome()
	if err != nil {
		return err
	}
	f.Event = &history.Event{Name: "batch.completed", Status: o.JobStatus, At: o.CompletedAt}
	if end, ofJob := ends[m.Name]; ofJob {
		f.Job, f.Event.Name, f.Event.Attempt, f.Event.Scenario = o.JobID, end.name, o.Attempt, history.ScenarioOf(o.Scenario)
		e.jobs.saw(o.JobID, update{state: end.state, attempt: o.Attempt, at: f.At, retryable: o.Retryable(), streamed: true})
	}
	return nil
}

// logged reads an event in the form of the log.
func (e *Engine) logged(m client.Message, f *history.Fact) error {
	v, err := m.Event()
	if err != nil {
		return err
	}
	f.Job = v.JobID
	f.Event, err = history.EventOf(v)
	switch {
	case v.JobID == "": // of a batch or a webhook
	case v.NextState != "":
		e.jobs.saw(v.JobID, update{state: v.NextState, attempt: v.Attempt, at: f.At, streamed: true})
	case v.EventName == "job.retries_exhausted":
		e.jobs.exhausted(v.JobID)
	}
	return err
}

// idle reads a stream slowly and drops its messages, like a hanging client.
func (e *Engine) idle(ctx context.Context, a *account, pause time.Duration) {
	for ctx.Err() == nil {
		for _, err := range a.Client.Stream(ctx, client.StreamOptions{}) {
			if err != nil || Sleep(ctx, pause) != nil {
				break
			}
		}
		_ = Sleep(ctx, longestBackoff)
	}
}
