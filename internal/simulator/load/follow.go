package load

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// If a job is due after the drain time, follow stops at the latest farPatience after the planned cancel.
const farPatience = 10 * time.Second

// follow sends the planned polls, cancels and retries for an accepted job. It stops when the scenario's drain time has passed since the
// submission or, for a deferred job, since execution_at.
func (e *Engine) follow(ctx context.Context, in scenario.Intent, t *ticket) {
	defer e.jobs.release(t.job)
	limit := e.o.Scenario.Drain
	if in.Ahead < limit {
		limit += in.Ahead
	} else {
		limit = min(limit, in.Cancel.After+farPatience)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if in.Polled {
		var polling sync.WaitGroup
		polling.Go(func() { e.poll(ctx, t) })
		defer func() { cancel(); polling.Wait() }()
	}
	if in.Cancel.In != "" {
		e.cancelIn(ctx, t, in.Cancel)
	}
	for range in.Retries {
		if state := e.await(ctx, t, isFinal); state != client.Failed {
			break
		}
		if !e.retry(ctx, t) {
			break
		}
	}
	if !e.awaitEnd && !in.Polled {
		return
	}
	end := e.await(ctx, t, isFinal)
	if end == client.Canceled && e.o.Recheck > 0 {
		e.cancelAgain(ctx, t)
	}
	if in.Polled && end != "" { // the stream may have shown the end before a poll did, so poll once more
		etag := ""
		e.lookAt(ctx, t.job, t.number, t.tenant, &etag)
	}
}

func (e *Engine) cancelAgain(ctx context.Context, t *ticket) {
	wait := e.o.Recheck
	if due := t.request.ExecutionAt.Sub(e.serviceTime(time.Now())); due > 0 && due < time.Minute {
		wait += due
	}
	if Sleep(ctx, wait) == nil {
		e.act(ctx, t, "cancel", e.accounts[t.tenant].Quick.Cancel)
	}
}

// await waits for a state for which `wanted` returns true. It returns the state, or "" if the context ends first.
func (e *Engine) await(ctx context.Context, t *ticket, wanted func(state string) bool) string {
	for {
		state, _, changed := e.jobs.look(t.job)
		if wanted(state) {
			return state
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ""
		}
	}
}

func (e *Engine) cancelIn(ctx context.Context, t *ticket, c scenario.CancelIntent) {
	if e.await(ctx, t, func(state string) bool { return rank[state] >= rank[c.In] }) == "" || Sleep(ctx, c.After) != nil {
		return
	}
	e.act(ctx, t, "cancel", e.accounts[t.tenant].Quick.Cancel)
}

func (e *Engine) retry(ctx context.Context, t *ticket) bool {
	_, before, _ := e.jobs.look(t.job)
	a := e.act(ctx, t, "retry", e.accounts[t.tenant].Quick.Retry)
	return a != nil && a.Attempt > before
}

// act sends a cancel or a retry, and repeats the request until it gets a response. It records each request. If a retry is repeated, the
// service may start two attempts.
func (e *Engine) act(
	ctx context.Context, t *ticket, verb string, do func(context.Context, string, ...client.Option) (*client.Changed, error),
) (changed *client.Changed) {
	repeat(ctx, func() (done bool) {
		sent := time.Now()
		a, err := do(ctx, t.job)
		action := answerOf(sent, err)
		if action.Verb = verb; err == nil {
			action.Job, action.State, action.Attempt, action.RequestID, action.UpdatedAt = a.JobID, a.State, a.Attempt, a.RequestID, a.UpdatedAt
			changed = a
		}
		e.o.History.Add(history.Fact{At: action.Answered, Kind: history.Acted, Tenant: t.tenant, Ticket: t.number, Job: t.job, Action: &action})
		if err == nil {
			e.jobs.apply(t.job, update{state: a.State, attempt: max(a.Attempt, 1), at: action.Answered})
		}
		return err == nil || !mayPass(action.Status) && action.Status != 0
	})
	return changed
}

const (
	shortestPoll = 50 * time.Millisecond
	longestPoll  = 2 * time.Second
)

// poll polls the job until ctx ends. While the job is in a final state, poll waits for a new attempt.
func (e *Engine) poll(ctx context.Context, t *ticket) {
	for etag := ""; ; {
		wait := e.lookAt(ctx, t.job, t.number, t.tenant, &etag)
		if wait == 0 && e.await(ctx, t, func(state string) bool { return !isFinal(state) }) == "" {
			return
		}
		if Sleep(ctx, min(max(wait, shortestPoll), longestPoll)) != nil {
			return
		}
	}
}

// lookAt polls the job once. It returns the time to wait before the next poll, or 0 if the job has ended.
func (e *Engine) lookAt(ctx context.Context, id string, number int64, tenant int, etag *string) time.Duration {
	var options []client.Option
	if *etag != "" {
		options = append(options, client.IfNoneMatch(*etag))
	}
	sent := time.Now().UTC()
	j, err := e.accounts[tenant].Quick.Job(ctx, id, options...)
	now := time.Now().UTC()
	switch {
	case errors.Is(err, client.ErrNotModified), err != nil && ctx.Err() != nil:
		return longestPoll / 4
	case err != nil:
		if status := answerOf(sent, err).Status; status != 0 && !mayPass(status) {
			e.o.History.Add(history.Fact{
				At: now, Sent: sent, Kind: history.Looked, Tenant: tenant, Ticket: number, Job: id,
				Note: err.Error(), Shown: &history.Job{},
			})
		}
		return longestPoll
	}
	*etag = j.ETag
	e.o.History.Add(history.Fact{At: now, Sent: sent, Kind: history.Looked, Tenant: tenant, Ticket: number, Job: id, Shown: history.JobOf(*j)})
	retryable := j.Failure != nil && j.Failure.Retryable()
	e.jobs.apply(id, update{state: j.State, attempt: j.Attempt, at: now, retryable: retryable && j.CanRetry})
	if isFinal(j.State) {
		return 0
	}
	return max(j.RetryAfter/4, shortestPoll)
}

// Another tenant requests the job of every intrudeEvery-th ticket.
const intrudeEvery = 50

// intrude requests the job as another tenant in all possible ways. The service must respond as if the job did not exist.
func (e *Engine) intrude(ctx context.Context, t *ticket) {
	other := e.accounts[(t.tenant+1)%len(e.accounts)]
	for _, way := range []struct {
		verb string
		ask  func(*client.Client) error
	}{
		{"get", func(c *client.Client) error { _, err := c.Job(ctx, t.job); return err }},
		{"cancel", func(c *client.Client) error { _, err := c.Cancel(ctx, t.job); return err }},
		{"retry", func(c *client.Client) error { _, err := c.Retry(ctx, t.job); return err }},
		{"report", func(c *client.Client) error { _, err := c.Report(ctx, t.job, 0); return err }},
		{"result", func(c *client.Client) error { _, err := c.Result(ctx, t.job); return err }},
		{"delete", func(c *client.Client) error { return c.Delete(ctx, t.job) }},
		{"events", func(c *client.Client) error {
			for _, err := range c.JobEvents(ctx, t.job) {
				return err
			}
			return nil
		}},
	} {
		sent := time.Now()
		action := answerOf(sent, way.ask(other.Quick))
		action.Verb = way.verb
		e.o.History.Add(history.Fact{
			At: action.Answered, Kind: history.Intruded, Tenant: other.Tenant, Ticket: t.number, Job: t.job, Action: &action,
		})
	}
}
