package judge

import (
	"net/http"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// sighting is a state that an answer told, by the simulator's clock.
type observation struct {
	what     string
	sent, at time.Time // sent is zero when it is not known, and then some time before
	state    string
	attempt  int       // 0: not told
	updated  time.Time // by Postgres' clock; zero: not told
	replay   bool      // tells what the first answer told
	first    int       // steps that fit it; set by place
	latest   int
}

// longestRequest is what a request may take whose beginning is not known.
const longestRequest = 30 * time.Second

func (o *observation) asked() time.Time {
	if o.sent.IsZero() {
		return o.at.Add(-longestRequest)
	}
	return o.sent
}

// judgeAnswers: each answer tells a state that the job had between the request
// and the answer, and no answer is older than one that had come before it was
// asked for.
func (c *checker) checkAnswers() {
	c.checkTries()
	c.checkActions()
	if !c.logComplete || len(c.steps) == 0 {
		return
	}
	var placed []*observation
	all := c.observations()
	slices.SortStableFunc(all, func(a, b *observation) int { return a.at.Compare(b.at) })
	for _, o := range all {
		c.look(answered)
		if !c.place(o) {
			c.must(false, answered, "%s tells %s (attempt %d), which the job was not at that time", o.what, o.state, o.attempt)
			continue
		}
		for _, before := range placed {
			after := before.at.Before(o.asked())
			c.must(o.replay || !after || o.latest >= before.first, answered, "%s tells %s, but %s before it had told %s already",
				o.what, o.state, before.what, before.state)
		}
		placed = append(placed, o)
	}
}

// place finds the steps of the log that the sighting may have seen.
func (c *checker) place(o *observation) bool {
	found := false
	slack := c.run.slack()
	for i, step := range c.steps {
		if step.Next != o.state || o.attempt > 0 && step.Attempt != o.attempt || !o.updated.IsZero() && !step.At.Equal(o.updated) {
			continue
		}
		if step.At.After(o.at.Add(slack)) {
			continue // it was not so far yet
		}
		if i+1 < len(c.steps) && !o.replay && c.steps[i+1].At.Before(o.asked().Add(-slack)) {
			continue // it was further already
		}
		if !found {
			o.first, found = i, true
		}
		o.latest = i
	}
	return found
}

func (c *checker) observations() (all []*observation) {
	for _, f := range c.facts {
		switch {
		case f.Tenant != c.tenant: // that it got an answer is looked at elsewhere
		case f.Submission != nil:
			for _, t := range f.Submission.Tries {
				if t.Accepted() && t.Job == c.job && t.State != "" {
					all = append(all, &observation{what: "the answer to the submission", sent: t.Sent, at: t.Answered, state: t.State, replay: t.Replayed})
				}
			}
		case f.Action != nil && f.Action.Status == 200 && f.Action.State != "":
			a := f.Action
			all = append(all, &observation{what: "the answer to " + a.Verb, sent: a.Sent, at: f.At, state: a.State, attempt: a.Attempt})
		case f.Kind == history.Looked && f.Told != nil && f.Told.State != "":
			all = append(all, jobObservation("a poll", &f))
		case f.Kind == history.ListedJob && f.Told != nil:
			all = append(all, jobObservation("the list of jobs", &f))
		}
	}
	return all
}

func jobObservation(what string, f *history.Fact) *observation {
	return &observation{
		what: what, sent: f.Sent, at: f.At,
		state: f.Told.State, attempt: f.Told.Attempt, updated: f.Told.UpdatedAt,
	}
}

// judgeRefusals: a valid request is refused only for now, and the kind that has
// none is refused always.
func checkRefusals(s *history.Submission, run *RunContext, must func(ok bool, invariant, format string, args ...any)) {
	for _, t := range s.Tries {
		switch {
		case t.Code == "RFA_EXEC_IDEMPOTENCY_CONFLICT":
			must(false, answered, "a repetition of the same request was refused as another one under its key")
		case t.Status >= 400 && t.Status < 500 && t.Status != http.StatusTooManyRequests:
			must(!valid(s, t, run.slack()), answered, "a valid request was refused with %d %s", t.Status, t.Code)
		case t.Accepted():
			must(s.WorkKind != payloadInvalid, expected, "%s was accepted as job %s", payloadInvalid, t.Job)
		}
	}
}

// valid reports whether there was nothing wrong with the request of a try, for
// all the time until it was answered: execution_at must be ahead.
func valid(s *history.Submission, t history.Try, slack time.Duration) bool {
	looked := t.Sent
	if t.Answered.After(looked) {
		looked = t.Answered
	}
	return s.WorkKind != payloadInvalid && (s.ExecutionAt == nil || s.ExecutionAt.After(looked.Add(slack)))
}

// judgeTries: all tries of a ticket are told the same job, made at one time.
func (c *checker) checkTries() {
	var madeAt time.Time
	if job := c.current(); job != nil {
		madeAt = job.CreatedAt
	}
	for _, f := range c.byKind[history.Submitted] {
		if f.Submission == nil {
			continue
		}
		c.look(answered)
		checkRefusals(f.Submission, c.run, c.must)
		for _, t := range f.Submission.Tries {
			if !t.Accepted() {
				continue
			}
			c.must(t.Job == c.job, answered, "a repetition of the request was told job %s", t.Job)
			if madeAt.IsZero() {
				madeAt = t.CreatedAt
			}
			c.must(t.CreatedAt.IsZero() || t.Job != c.job || t.CreatedAt.Equal(madeAt), answered, "a try was told created_at %s, the job has %s", moment(&t.CreatedAt), moment(&madeAt))
		}
	}
	for _, f := range c.byKind[history.Looked] {
		if f.Told != nil && f.Tenant == c.tenant {
			c.must(f.Told.State != "", answered, "the owner's poll was refused: %s", f.Note)
			c.must(madeAt.IsZero() || f.Told.CreatedAt.IsZero() || f.Told.CreatedAt.Equal(madeAt), answered, "a poll tells created_at %s, the job has %s", moment(&f.Told.CreatedAt), moment(&madeAt))
			c.must(f.Told.Outcome == outcomes[f.Told.State], answered, "a poll tells %s with outcome %q", f.Told.State, f.Told.Outcome)
		}
	}
}

// judgeActions: a cancel that is answered leaves the job ended, a retry that is
// refused found one that has no attempt to come, and nobody cancels unasked.
func (c *checker) checkActions() {
	asked := false
	for _, f := range c.byKind[history.Acted] {
		a := f.Action
		if a == nil || f.Tenant != c.tenant {
			continue
		}
		c.look(answered)
		asked = asked || a.Verb == "cancel"
		c.must(a.Job == "" || a.Job == c.job, answered, "the answer to %s is about job %s", a.Verb, a.Job)
		refused := a.Status >= 400 && a.Status < 500 && a.Status != 429
		if a.Verb == "cancel" {
			c.must(!refused, answered, "the cancel was refused with %d %s", a.Status, a.Code)
			c.must(a.Status != 200 || final(a.State), answered, "the job is %s after its cancel was answered", a.State)
			job := c.current()
			c.must(job == nil || a.Status != 200 || a.State != canceled || job.State == canceled, answered, "the job was told to be CANCELED and is %s", stateOf(job))
			continue
		}
		c.must(!refused || a.Status == 409, answered, "the %s was refused with %d %s", a.Verb, a.Status, a.Code)
		c.must(a.Status != 409 || c.mayRefuseRetry(f), answered, "the retry was refused with %s, though the job could be retried", a.Code)
	}
	job := c.current()
	c.must(job == nil || job.State != canceled || asked || c.submission() == nil, answered, "the job is CANCELED, and nobody asked for that")
}

// mayRefuseRetry: at some time between request and answer the job was SUCCEEDED,
// CANCELED, or out of attempts.
func (c *checker) mayRefuseRetry(f *history.Fact) bool {
	job := c.current()
	if !c.logComplete || job == nil {
		return true
	}
	for _, state := range []string{succeeded, canceled, failed} {
		o := &observation{sent: f.Action.Sent, at: f.At, state: state}
		if state == failed {
			o.attempt = job.MaxAttempts
		}
		if c.place(o) {
			return true
		}
	}
	return false
}

func stateOf(job *history.Job) string {
	if job == nil {
		return ""
	}
	return job.State
}

// judgeLists: the list has the job once, and as the rows have it.
func (c *checker) checkLists() {
	listed := c.byKind[history.ListedJob]
	if len(listed) == 0 {
		return
	}
	c.look(answered)
	c.must(len(listed) == 1, answered, "the list of jobs has the job %d times", len(listed))
	for _, f := range listed {
		job := f.Told
		if c.row == nil || job == nil || job.State != c.row.State || job.Attempt != c.row.Attempt {
			continue // one that moved meanwhile; whether it was ever so is looked at elsewhere
		}
		same := job.Type == c.row.Type && job.WorkKind == c.row.WorkKind && job.Outcome == c.row.Outcome && job.MaxAttempts == c.row.MaxAttempts && job.Correlation == c.row.Correlation &&
			job.Batch == c.row.Batch && job.CreatedAt.Equal(c.row.CreatedAt) && sameMoment(job.ExecutionAt, c.row.ExecutionAt) &&
			sameMoment(job.StartedAt, c.row.StartedAt) && sameMoment(job.FinishedAt, c.row.FinishedAt)
		c.must(same, answered, "the list of jobs tells the job differently than it is stored")
	}
}
