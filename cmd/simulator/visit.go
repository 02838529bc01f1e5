package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// pace is how the tour deals with time. Leads are counted on this machine's
// clock, so client and service should agree to within a second (section 10).
type pace struct {
	lead       time.Duration // how far ahead a scheduled job is put
	outageLead time.Duration // the same where the service must be stopped before
	poll       time.Duration // between looks at a job; a Retry-After can only shorten it
	watch      time.Duration // between looks for a moment that passes quickly
	settle     time.Duration // how long something must stay as it is
	punctual   time.Duration // how late a job may be queued after its time
	recovery   time.Duration // how late after the service is back
	tries      int           // how often a lost race against a quick job is run again

	patience      time.Duration // how long a delivery's end is waited for
	slow          time.Duration // how late the slow receiver answers, less than the service's limit
	overdue       time.Duration // how late a try may be
	deliveryTries int           // how many the service makes, well within patience; 0 when unknown
}

// paceFor chooses the intervals for a service whose time scale is known, or
// not (nil).
func paceFor(scale *float64) pace {
	p := pace{
		lead: 4 * time.Second, outageLead: 8 * time.Second,
		poll: 500 * time.Millisecond, watch: 50 * time.Millisecond,
		settle: time.Second, punctual: 2 * time.Second, recovery: 5 * time.Second, tries: 5,
		patience: time.Minute, slow: time.Second, overdue: 10 * time.Second,
	}
	if scale != nil {
		second := time.Duration(*scale * float64(time.Second))
		p.poll = min(max(10*second, 100*time.Millisecond), p.poll)
		p.watch = min(max(second, 10*time.Millisecond), p.watch)
	}
	return p
}

// visit is the playing of one kind. It belongs to one goroutine.
type visit struct {
	kind     kind
	client   *client
	receiver *receiver
	pace     pace
	scale    *float64           // the service's time scale, nil when unknown
	outage   outage             // nil against a service that is not ours
	saw      func(state string) // told each state that is seen, for the progress line
	open     map[string]bool    // jobs not known to be final
	webhooks []string           // ids of registered webhooks
	callback string             // of the jobs that are submitted, "" for none
	last     string             // the state last seen, for the message of a timeout

	got      string
	attempts int
	duration time.Duration // of the last attempt, by its report
	findings []string
	cut      bool     // got is how far it came: the end was not waited for
	notes    []string // worth telling, and no difference
}

// ticket is a job of this visit: what was asked for.
type ticket struct {
	id          string
	kind        string // the type: EXECUTE or DEFERRED
	executionAt time.Time
}

// differs notes one difference between what was expected and what came. The
// same one may be seen on several attempts; it is told once.
func (v *visit) differs(format string, args ...any) {
	if d := fmt.Sprintf(format, args...); !slices.Contains(v.findings, d) {
		v.findings = append(v.findings, d)
	}
}

// note remembers a state for the progress line and for the end of the visit.
func (v *visit) note(id, state string, attempt int) {
	v.last = state
	if attempt > 1 {
		v.last = fmt.Sprintf("%s (attempt %d)", state, attempt)
	}
	v.saw(state)
	if isFinal(state) {
		delete(v.open, id)
		return
	}
	v.open[id] = true
}

// body gives the request for a job of this kind, at once or at the given time.
func (v *visit) body(at time.Time) submission {
	if at.IsZero() {
		return submission{Type: "EXECUTE", WorkKind: v.kind.name, Callback: v.callback}
	}
	return submission{Type: "DEFERRED", WorkKind: v.kind.name, ExecutionAt: at.Format("2006-01-02T15:04:05.000000Z")}
}

// in gives the moment d from now as the service can store it.
func in(d time.Duration) time.Time {
	return time.Now().UTC().Add(d).Truncate(time.Microsecond)
}

// post submits a job under the given idempotency key and returns the answer
// as it is.
func (v *visit) post(ctx context.Context, s submission, key string) (*answer, error) {
	return v.client.do(ctx, http.MethodPost, "/v1/jobs", s, http.Header{"Idempotency-Key": {key}})
}

// submit submits a job that the service must accept.
func (v *visit) submit(ctx context.Context, at time.Time) (ticket, error) {
	return v.submitKeyed(ctx, at, uuid.NewString())
}

func (v *visit) submitKeyed(ctx context.Context, at time.Time, key string) (ticket, error) {
	s := v.body(at)
	a, err := v.post(ctx, s, key)
	if err != nil {
		return ticket{}, err
	}
	return v.accepted(a, s.Type, at)
}

// accepted judges the answer to a submission.
func (v *visit) accepted(a *answer, typ string, at time.Time) (ticket, error) {
	var r receipt
	if err := a.decode(http.StatusAccepted, &r); err != nil {
		return ticket{}, err
	}
	if r.JobID == "" {
		return ticket{}, fmt.Errorf("the service accepted the job without a job_id")
	}
	v.note(r.JobID, r.State, 1)
	if r.CreatedAt == nil {
		v.differs("the acceptance has no created_at")
	}
	if !at.IsZero() && r.State != stateCreated {
		v.differs("the scheduled job was accepted as %s, expected CREATED", r.State)
	}
	if at.IsZero() && r.State != stateCreated && r.State != stateQueued {
		v.differs("the job was accepted as %s, expected CREATED or QUEUED", r.State)
	}
	if location := a.header.Get("Location"); !strings.HasSuffix(location, "/v1/jobs/"+r.JobID) {
		v.differs("the acceptance has Location %q, expected the address of the job", location)
	}
	return ticket{id: r.JobID, kind: typ, executionAt: at}, nil
}

// look reads the job once; wait is the Retry-After that came with it.
func (v *visit) look(ctx context.Context, t ticket) (j jobView, wait time.Duration, err error) {
	a, err := v.client.do(ctx, http.MethodGet, "/v1/jobs/"+t.id, nil, nil)
	if err != nil {
		return j, 0, err
	}
	if err := a.decode(http.StatusOK, &j); err != nil {
		return j, 0, err
	}
	v.note(t.id, j.State, j.Attempt)
	return j, a.retryAfter(), nil
}

// await polls until the job is as wanted. Retry-After is honoured up to the
// given interval: the tour would rather be quick than polite for long.
func (v *visit) await(ctx context.Context, t ticket, every time.Duration, wanted func(jobView) bool) (jobView, error) {
	for {
		j, wait, err := v.look(ctx, t)
		if err != nil || wanted(j) {
			return j, err
		}
		if wait == 0 || wait > every {
			wait = every
		}
		if err := sleep(ctx, wait); err != nil {
			return j, err
		}
	}
}

// awaitEnd waits for the end of the given attempt, or of a later one.
func (v *visit) awaitEnd(ctx context.Context, t ticket, attempt int) (jobView, error) {
	return v.await(ctx, t, v.pace.poll, func(j jobView) bool { return isFinal(j.State) && j.Attempt >= attempt })
}

// change sends a cancel or a retry and returns the answer as it is.
func (v *visit) change(ctx context.Context, t ticket, verb string) (*answer, error) {
	return v.client.do(ctx, http.MethodPost, "/v1/jobs/"+t.id+"/"+verb, nil, nil)
}

// cancel cancels the job and returns the state that the service answers.
func (v *visit) cancel(ctx context.Context, t ticket) (string, error) {
	a, err := v.change(ctx, t, "cancel")
	if err != nil {
		return "", err
	}
	var r receipt
	if err := a.decode(http.StatusOK, &r); err != nil {
		return "", err
	}
	v.note(t.id, r.State, 1)
	if r.JobID != t.id {
		v.differs("the cancel of %s answered for job %q", t.id, r.JobID)
	}
	if r.UpdatedAt == nil {
		v.differs("the answer to the cancel has no updated_at")
	}
	return r.State, nil
}

// report reads the report of the job's last attempt.
func (v *visit) report(ctx context.Context, t ticket) (reportView, error) {
	var r reportView
	a, err := v.client.do(ctx, http.MethodGet, "/v1/jobs/"+t.id+"/report", nil, nil)
	if err != nil {
		return r, err
	}
	return r, a.decode(http.StatusOK, &r)
}

// leave cancels what this visit leaves unfinished and removes its webhooks,
// also when it was interrupted: the tour leaves nothing behind.
func (v *visit) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, id := range v.webhooks {
		_, _ = v.client.once(ctx, http.MethodDelete, "/v1/webhooks/"+id, nil, nil)
	}
	for id := range v.open {
		// One try: what went wrong before is known already.
		_, _ = v.client.once(ctx, http.MethodPost, "/v1/jobs/"+id+"/cancel", nil, nil)
	}
}
