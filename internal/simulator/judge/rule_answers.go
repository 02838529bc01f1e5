package judge

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// observation is a job's state in a response. `sent` and `at` are times of the simulator's clock.
type observation struct {
	what     string
	sent, at time.Time // sent is zero if unknown
	state    string
	attempt  int       // 0: unknown
	updated  time.Time // updated_at in the response, by the service's clock; zero: unknown
	replay   bool      // the request was repeated, so the response may show an old state
	first    int       // index of the first step that may have led to the state; set by match
	last     int
}

// If the start of a request is unknown, the request is assumed to have taken at most this long.
const longestRequest = 30 * time.Second

func (o *observation) asked() time.Time { return cmp.Or(o.sent, o.at.Add(-longestRequest)) }

// checkOrder checks that each response shows a state that the job had between request and response. A request that is sent after a
// response must not return an older state.
func (c *checker) checkOrder() {
	if !c.logComplete || len(c.steps) == 0 {
		return
	}
	all := c.observations()
	slices.SortStableFunc(all, func(a, b *observation) int { return a.at.Compare(b.at) })
	var matched []*observation
	for _, o := range all {
		seen := c.match(o)
		c.must(seen, answered, "%s shows %s (attempt %d), but the job did not have this state at that time", o.what, o.state, o.attempt)
		if !seen {
			continue
		}
		for _, before := range matched {
			after := before.at.Before(o.asked())
			c.must(o.replay || !after || o.last >= before.first, answered, "%s shows %s, although %s had already shown the later state %s",
				o.what, o.state, before.what, before.state)
		}
		matched = append(matched, o)
	}
}

// match reports whether the job had the observed state between request and response. It sets o.first and o.last.
func (c *checker) match(o *observation) bool {
	found := false
	for i, step := range c.steps {
		if step.Next != o.state || o.attempt > 0 && step.Attempt != o.attempt || !o.updated.IsZero() && !step.At.Equal(o.updated) {
			continue
		}
		if step.At.After(c.run.latest(o.at)) {
			continue // the step had not happened yet
		}
		if i+1 < len(c.steps) && !o.replay && c.happenedBefore(c.steps[i+1], o.asked()) {
			continue // the state had already ended when the request was sent
		}
		if !found {
			o.first, found = i, true
		}
		o.last = i
	}
	return found
}

// happenedBefore reports whether the step had happened when the simulator's clock showed `at`. After a move of the clock, the step's real
// time may be unknown. Then only an event that the client had received proves that the step had happened.
func (c *checker) happenedBefore(step history.Event, at time.Time) bool {
	if real, known := c.run.moves().Since(step.At); known {
		return real.Before(at.Add(-clockSlack))
	}
	return slices.ContainsFunc(c.facts, func(f history.Fact) bool {
		if !f.At.Before(at) || f.Tenant != c.tenant {
			return false
		}
		switch f.Kind {
		case history.Received:
			return f.Delivery.EventID == step.ID
		case history.Streamed:
			e := f.Event
			return e.Name == step.Name && e.Attempt == step.Attempt && (e.Seq == step.Seq || endsAttempt(e.Name))
		}
		return false
	})
}

func (c *checker) observations() (all []*observation) {
	add := func(o observation) { all = append(all, &o) }
	for _, f := range c.facts {
		switch j, a := f.Shown, f.Action; {
		case f.Tenant != c.tenant: // reported by checkOwners
		case f.Submission != nil:
			for _, t := range f.Submission.Tries {
				if t.Accepted() && t.Job == c.id && t.State != "" {
					add(observation{what: "the answer to the submission", sent: t.Sent, at: t.Answered, state: t.State, replay: t.Replayed})
				}
			}
		case a != nil && a.Status == http.StatusOK && a.State != "":
			add(observation{what: "the answer to " + a.Verb, sent: a.Sent, at: f.At, state: a.State, attempt: a.Attempt})
		case f.Kind == history.Looked && j != nil && j.State != "":
			add(observation{what: "a poll", sent: f.Sent, at: f.At, state: j.State, attempt: j.Attempt, updated: j.UpdatedAt})
		case f.Kind == history.ListedJob && j != nil:
			add(observation{what: "the list of jobs", sent: f.Sent, at: f.At, state: j.State, attempt: j.Attempt, updated: j.UpdatedAt})
		}
	}
	return all
}

func isRefusal(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusTooManyRequests
}

// checkRefusals checks that valid requests are not refused permanently, and that invalid requests are never accepted.
func (c *checker) checkRefusals(s *history.Submission) {
	for _, t := range s.Tries {
		c.checkReceipt(s, t)
		switch {
		case t.Code == "RFA_EXEC_IDEMPOTENCY_CONFLICT":
			c.must(false, answered, "a repetition of the same request was refused as a different request with the same key")
		case isRefusal(t.Status):
			c.must(!c.valid(s, t), answered, "a valid request was refused with %d %s", t.Status, t.Code)
		case t.Accepted():
			c.must(s.WorkKind != payloadInvalid, expected, "work kind %s must be refused, but was accepted as job %s", payloadInvalid, t.Job)
		}
	}
}

// valid reports whether the service must accept the request. The work kind must be valid, and execution_at must be in the future until the
// response.
func (c *checker) valid(s *history.Submission, t history.Answer) bool {
	ahead := func(at time.Time) bool { return s.ExecutionAt.IsZero() || s.ExecutionAt.After(c.run.latest(at)) }
	return s.WorkKind != payloadInvalid && ahead(t.Sent) && ahead(t.Answered)
}

// checkTries checks that all responses to a submission show the same job and creation time.
func (c *checker) checkTries() {
	for _, f := range c.byKind[history.Submitted] {
		if f.Submission == nil {
			continue
		}
		c.checkRefusals(f.Submission)
		for _, t := range f.Submission.Tries {
			if t.Accepted() {
				c.must(t.Job == c.id, answered, "a repetition of the request returned another job, %s", t.Job)
				c.must(t.Job != c.id || c.madeAt(t.CreatedAt), answered,
					"a response to the submission shows the wrong created_at %s", clock(t.CreatedAt))
			}
		}
	}
}

func (c *checker) madeAt(at time.Time) bool {
	made := time.Time{}
	for _, f := range c.byKind[history.Submitted] {
		for _, t := range deref(f.Submission).Tries {
			made = cmp.Or(made, t.CreatedAt)
		}
	}
	if c.job != nil {
		made = c.job.CreatedAt
	}
	return at.IsZero() || made.IsZero() || at.Equal(made)
}

// checkActions checks the responses to cancel and retry requests, and that no job is canceled without a request.
func (c *checker) checkActions() {
	j, asked := c.job, false
	for _, f := range c.byKind[history.Acted] {
		a := f.Action
		if a == nil || f.Tenant != c.tenant {
			continue
		}
		refused, done := isRefusal(a.Status), a.Status == http.StatusOK
		c.must(a.Job == "" || a.Job == c.id, answered, "the answer to %s is about job %s", a.Verb, a.Job)
		c.must(!done || a.Error == "", answered, "the answer to %s cannot be read: %s", a.Verb, a.Error)
		c.must(!done || a.Error != "" || !a.UpdatedAt.IsZero(), answered, "the answer to %s has no updated_at", a.Verb)
		if a.Verb != "cancel" {
			c.must(!refused || a.Status == http.StatusConflict && c.mayRefuseRetry(f), answered,
				"the %s was refused with %d %s, though the job could be retried", a.Verb, a.Status, a.Code)
			continue
		}
		asked = true
		c.must(!refused, answered, "the cancel request was refused with %d %s", a.Status, a.Code)
		c.must(!done || final(a.State), answered, "the job is %s after its cancel request returned", a.State)
		c.must(!done || a.State != canceled || j == nil || j.State == canceled, answered,
			"the cancel request returned CANCELED, but the job is %s", deref(j).State)
	}
	c.must(j == nil || j.State != canceled || asked || c.submission == nil, answered, "the job is CANCELED, but no cancel request was sent")
}

// A retry may be refused if the job succeeded, was canceled, has no attempts left, or had an internal error.
func (c *checker) mayRefuseRetry(f *history.Fact) bool {
	if !c.logComplete || c.job == nil {
		return true
	}
	for _, r := range c.reports {
		if r.Failure == codeInternal {
			return true
		}
	}
	was := func(state string, attempt int) bool {
		return c.match(&observation{sent: f.Action.Sent, at: f.At, state: state, attempt: attempt})
	}
	return was(succeeded, 0) || was(canceled, 0) || was(failed, c.job.MaxAttempts)
}

// checkLists checks that the API lists the job once, with the stored values.
func (c *checker) checkLists() {
	listed := c.byKind[history.ListedJob]
	for _, f := range listed {
		c.must(len(listed) == 1, answered, "the list of jobs contains the job %d times", len(listed))
		a, b := f.Shown, c.row
		if b == nil || a == nil || a.State != b.State || a.Attempt != b.Attempt {
			continue // the state changed after the list was read; checkOrder checks the listed state
		}
		same := a.Type == b.Type && a.WorkKind == b.WorkKind && a.Outcome == b.Outcome && a.MaxAttempts == b.MaxAttempts &&
			a.CorrelationID == b.CorrelationID && a.BatchID == b.BatchID && a.CreatedAt.Equal(b.CreatedAt) &&
			sameTime(a.ExecutionAt, b.ExecutionAt) && sameTime(a.StartedAt, b.StartedAt) && sameTime(a.FinishedAt, b.FinishedAt)
		c.must(same, answered, "the list of jobs shows the job differently than it is stored")
	}
}
