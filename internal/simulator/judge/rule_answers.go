package judge

import (
	"net/http"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// sighting is a state that an answer told, by the simulator's clock.
type sighting struct {
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

func (s *sighting) asked() time.Time {
	if s.sent.IsZero() {
		return s.at.Add(-longestRequest)
	}
	return s.sent
}

// judgeAnswers: each answer tells a state that the job had between the request
// and the answer, and no answer is older than one that had come before it was
// asked for.
func (q *inquiry) judgeAnswers() {
	q.judgeTries()
	q.judgeActions()
	if !q.whole || len(q.steps) == 0 {
		return
	}
	var placed []*sighting
	all := q.sightings()
	slices.SortStableFunc(all, func(a, b *sighting) int { return a.at.Compare(b.at) })
	for _, s := range all {
		q.look(answered)
		if !q.place(s) {
			q.must(false, answered, "%s tells %s (attempt %d), which the job was not at that time", s.what, s.state, s.attempt)
			continue
		}
		for _, before := range placed {
			after := before.at.Before(s.asked())
			q.must(s.replay || !after || s.latest >= before.first, answered, "%s tells %s, but %s before it had told %s already",
				s.what, s.state, before.what, before.state)
		}
		placed = append(placed, s)
	}
}

// place finds the steps of the log that the sighting may have seen.
func (q *inquiry) place(s *sighting) bool {
	found := false
	slack := q.ground.slack()
	for i, step := range q.steps {
		if step.Next != s.state || s.attempt > 0 && step.Attempt != s.attempt || !s.updated.IsZero() && !step.At.Equal(s.updated) {
			continue
		}
		if step.At.After(s.at.Add(slack)) {
			continue // it was not so far yet
		}
		if i+1 < len(q.steps) && !s.replay && q.steps[i+1].At.Before(s.asked().Add(-slack)) {
			continue // it was further already
		}
		if !found {
			s.first, found = i, true
		}
		s.latest = i
	}
	return found
}

func (q *inquiry) sightings() (all []*sighting) {
	for _, f := range q.facts {
		switch {
		case f.Tenant != q.tenant: // that it got an answer is looked at elsewhere
		case f.Submission != nil:
			for _, t := range f.Submission.Tries {
				if t.Accepted() && t.Job == q.job && t.State != "" {
					all = append(all, &sighting{what: "the answer to the submission", sent: t.Sent, at: t.Answered, state: t.State, replay: t.Replayed})
				}
			}
		case f.Action != nil && f.Action.Status == 200 && f.Action.State != "":
			a := f.Action
			all = append(all, &sighting{what: "the answer to " + a.Verb, sent: a.Sent, at: f.At, state: a.State, attempt: a.Attempt})
		case f.Kind == history.Looked && f.Told != nil && f.Told.State != "":
			all = append(all, toldSighting("a poll", &f))
		case f.Kind == history.ListedJob && f.Told != nil:
			all = append(all, toldSighting("the list of jobs", &f))
		}
	}
	return all
}

func toldSighting(what string, f *history.Fact) *sighting {
	return &sighting{
		what: what, sent: f.Sent, at: f.At,
		state: f.Told.State, attempt: f.Told.Attempt, updated: f.Told.UpdatedAt,
	}
}

// judgeRefusals: a valid request is refused only for now, and the kind that has
// none is refused always.
func judgeRefusals(s *history.Submission, g *Ground, must func(ok bool, invariant, format string, args ...any)) {
	for _, t := range s.Tries {
		judgeReceipt(s, t, must)
		switch {
		case t.Code == "RFA_EXEC_IDEMPOTENCY_CONFLICT":
			must(false, answered, "a repetition of the same request was refused as another one under its key")
		case t.Status >= 400 && t.Status < 500 && t.Status != http.StatusTooManyRequests:
			must(!valid(s, t, g.slack()), answered, "a valid request was refused with %d %s", t.Status, t.Code)
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
func (q *inquiry) judgeTries() {
	var madeAt time.Time
	if told := q.told(); told != nil {
		madeAt = told.CreatedAt
	}
	for _, f := range q.byKind[history.Submitted] {
		if f.Submission == nil {
			continue
		}
		q.look(answered)
		judgeRefusals(f.Submission, q.ground, q.must)
		for _, t := range f.Submission.Tries {
			if !t.Accepted() {
				continue
			}
			q.must(t.Job == q.job, answered, "a repetition of the request was told job %s", t.Job)
			if madeAt.IsZero() {
				madeAt = t.CreatedAt
			}
			q.must(t.CreatedAt.IsZero() || t.Job != q.job || t.CreatedAt.Equal(madeAt), answered, "a try was told created_at %s, the job has %s", moment(&t.CreatedAt), moment(&madeAt))
		}
	}
	for _, f := range q.byKind[history.Looked] {
		if f.Told != nil && f.Tenant == q.tenant {
			q.must(f.Told.State != "", answered, "the owner's poll was refused: %s", f.Note)
			q.must(madeAt.IsZero() || f.Told.CreatedAt.IsZero() || f.Told.CreatedAt.Equal(madeAt), answered, "a poll tells created_at %s, the job has %s", moment(&f.Told.CreatedAt), moment(&madeAt))
			q.must(f.Told.Outcome == outcomes[f.Told.State], answered, "a poll tells %s with outcome %q", f.Told.State, f.Told.Outcome)
		}
	}
}

// judgeActions: a cancel that is answered leaves the job ended, a retry that is
// refused found one that has no attempt to come, and nobody cancels unasked.
func (q *inquiry) judgeActions() {
	asked := false
	for _, f := range q.byKind[history.Acted] {
		a := f.Action
		if a == nil || f.Tenant != q.tenant {
			continue
		}
		q.look(answered)
		asked = asked || a.Verb == "cancel"
		q.must(a.Job == "" || a.Job == q.job, answered, "the answer to %s is about job %s", a.Verb, a.Job)
		refused := a.Status >= 400 && a.Status < 500 && a.Status != 429
		if a.Verb == "cancel" {
			q.must(!refused, answered, "the cancel was refused with %d %s", a.Status, a.Code)
			q.must(a.Status != 200 || final(a.State), answered, "the job is %s after its cancel was answered", a.State)
			told := q.told()
			q.must(told == nil || a.Status != 200 || a.State != canceled || told.State == canceled, answered, "the job was told to be CANCELED and is %s", stateOf(told))
			continue
		}
		q.must(!refused || a.Status == 409, answered, "the %s was refused with %d %s", a.Verb, a.Status, a.Code)
		q.must(a.Status != 409 || q.mayRefuseRetry(f), answered, "the retry was refused with %s, though the job could be retried", a.Code)
	}
	told := q.told()
	q.must(told == nil || told.State != canceled || asked || q.submission() == nil, answered, "the job is CANCELED, and nobody asked for that")
}

// mayRefuseRetry: at some time between request and answer the job was SUCCEEDED,
// CANCELED, or out of attempts.
func (q *inquiry) mayRefuseRetry(f *history.Fact) bool {
	told := q.told()
	if !q.whole || told == nil {
		return true
	}
	for _, state := range []string{succeeded, canceled, failed} {
		s := &sighting{sent: f.Action.Sent, at: f.At, state: state}
		if state == failed {
			s.attempt = told.MaxAttempts
		}
		if q.place(s) {
			return true
		}
	}
	return false
}

func stateOf(told *history.Job) string {
	if told == nil {
		return ""
	}
	return told.State
}

// judgeLists: the list has the job once, and as the rows have it.
func (q *inquiry) judgeLists() {
	listed := q.byKind[history.ListedJob]
	if len(listed) == 0 {
		return
	}
	q.look(answered)
	q.must(len(listed) == 1, answered, "the list of jobs has the job %d times", len(listed))
	for _, f := range listed {
		told := f.Told
		if q.row == nil || told == nil || told.State != q.row.State || told.Attempt != q.row.Attempt {
			continue // one that moved meanwhile; whether it was ever so is looked at elsewhere
		}
		same := told.Type == q.row.Type && told.WorkKind == q.row.WorkKind && told.Outcome == q.row.Outcome && told.MaxAttempts == q.row.MaxAttempts && told.Correlation == q.row.Correlation &&
			told.Batch == q.row.Batch && told.CreatedAt.Equal(q.row.CreatedAt) && sameMoment(told.ExecutionAt, q.row.ExecutionAt) &&
			sameMoment(told.StartedAt, q.row.StartedAt) && sameMoment(told.FinishedAt, q.row.FinishedAt)
		q.must(same, answered, "the list of jobs tells the job differently than it is stored")
	}
}
