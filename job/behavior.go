package job

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Custom is the work kind of jobs with a Behavior in their request. Only a test bed accepts this kind. The service never draws it at
// random.
const Custom Kind = "CUSTOM"

// AllKinds returns the kinds of the catalogue and Custom.
func AllKinds() []Kind { return append(Kinds(), Custom) }

// Limits of a Behavior. Memory and I/O have the limits of the kinds MEMORY_SPIKE and IO_HEAVY.
const (
	DefaultBehaviorSteps  = 10
	MaxBehaviorSteps      = 100
	MaxPlannedAttempt     = 101 // 1 + the largest allowed FORGERUN_MAX_RETRIES
	MaxExtensions         = 20
	MaxExtensionBytes     = 2 * kib // bytes of the extension members of one problem
	MaxPlannedText        = 1000    // characters of a title, a detail or a type
	MaxResultBytes        = 256 * kib
	MaxBehaviorMemory     = 64 * kib * kib
	MaxBehaviorIO         = 40 * kib * kib
	defaultBehaviorResult = 1 * kib
)

// Behavior is the behavior of a CUSTOM job. The zero Behavior succeeds at once.
type Behavior struct {
	Seed        *int64           `json:"seed,omitempty"` // nil: the time of the request
	Duration    time.Duration    `json:"duration,omitempty"`
	Jitter      time.Duration    `json:"jitter,omitempty"`   // maximum deviation of an attempt's duration
	BeginAt     float64          `json:"begin_at,omitempty"` // fraction of the work that is already done when an attempt begins
	Steps       int              `json:"steps,omitempty"`    // progress steps; 0 means DefaultBehaviorSteps
	Failures    []PlannedFailure `json:"failures,omitempty"`
	Result      PlannedResult    `json:"result,omitzero"`
	Emit        []PlannedEvent   `json:"emit,omitempty"`
	CPU         float64          `json:"cpu,omitempty"` // fraction of the attempt's time in which it hashes, 0 to 1
	MemoryBytes int              `json:"memory_bytes,omitempty"`
	IOBytes     int              `json:"io_bytes,omitempty"`
}

// PlannedFailure is a failure of certain attempts.
type PlannedFailure struct {
	Attempts []int          `json:"attempts"`
	After    *time.Duration `json:"after,omitempty"` // time from the start of the attempt; nil: at the end of its duration
	Problem  PlannedProblem `json:"problem,omitzero"`
}

// PlannedProblem is the content of a planned failure's outcome document. Missing members default to the values of the reason CustomFailed.
type PlannedProblem struct {
	Type       string          `json:"type,omitempty"`
	Title      string          `json:"title,omitempty"`
	Status     int             `json:"status,omitempty"`
	Detail     string          `json:"detail,omitempty"`
	Code       Code            `json:"code,omitempty"`
	Retryable  *bool           `json:"retryable,omitempty"`   // nil: true
	RetryAfter int             `json:"retry_after,omitempty"` // seconds; 0: the usual wait before a retry
	Stage      Stage           `json:"stage,omitempty"`
	Extensions json.RawMessage `json:"extensions,omitempty"` // JSON object of further members
}

// PlannedResult is the result of a success: either a number of bytes, or the body itself.
type PlannedResult struct {
	MediaType string  `json:"media_type,omitempty"`
	Size      *int    `json:"size,omitempty"`
	Body      *string `json:"body,omitempty"`
}

// PlannedEvent is an event that each attempt emits. After is the time from the start of the attempt.
type PlannedEvent struct {
	Emission
	After time.Duration `json:"after,omitempty"`
}

const behaviorAt = "/params/behavior"

// Check returns a violation for values that contradict each other, and for an attempt that would exceed the execution limit.
func (b *Behavior) Check(limit time.Duration) (violations []Violation) {
	if b == nil {
		return nil
	}
	add := func(pointer, detail string) {
		violations = append(violations, Violation{Pointer: behaviorAt + pointer, Detail: detail})
	}
	switch {
	case b.Duration >= limit:
		add("/duration", "The work must end before the execution limit of this server, "+limit.String()+".")
	case b.Jitter > b.Duration:
		add("/jitter", "The jitter must not be more than the duration, "+b.Duration.String()+".")
	case b.Duration+b.Jitter >= limit:
		add("/jitter", "Duration and jitter together must be less than the execution limit of this server, "+limit.String()+".")
	}
	late := "This is longer than the duration, " + b.Duration.String() + "."
	planned := map[int]bool{}
	for i, f := range b.Failures {
		at := "/failures/" + strconv.Itoa(i)
		for n, attempt := range f.Attempts {
			if planned[attempt] {
				add(at+"/attempts/"+strconv.Itoa(n), "Attempt "+strconv.Itoa(attempt)+" is listed twice.")
			}
			planned[attempt] = true
		}
		if f.After != nil && *f.After > b.Duration {
			add(at+"/after", late)
		}
		if r := f.Problem.Retryable; r != nil && !*r && f.Problem.RetryAfter > 0 {
			add(at+"/problem/retryAfter", "Only a retryable failure can have a retryAfter.")
		}
	}
	for i, e := range b.Emit {
		if e.After > b.Duration {
			add("/emit/"+strconv.Itoa(i)+"/after", late)
		}
	}
	return violations
}

// FailureOf returns the planned failure of an attempt, or nil if there is none.
func (b *Behavior) FailureOf(attempt int) *PlannedFailure {
	if b == nil {
		return nil
	}
	return plannedFor(b.Failures, attempt)
}

// FailureOf returns the failure that a CUSTOM job plans for the attempt, or nil.
func (d *Definition) FailureOf(attempt int) *PlannedFailure {
	if d == nil {
		return nil
	}
	return d.Behavior.FailureOf(attempt)
}

func plannedFor(failures []PlannedFailure, attempt int) *PlannedFailure {
	for i := range failures {
		if slices.Contains(failures[i].Attempts, attempt) {
			return &failures[i]
		}
	}
	return nil
}

// StepsTotal returns the number of progress steps.
func (b *Behavior) StepsTotal() int { return cmp.Or(b.Steps, DefaultBehaviorSteps) }

// ResultSize returns the size of the result in bytes.
func (b *Behavior) ResultSize() int {
	switch r := b.Result; {
	case r.Body != nil:
		return len(*r.Body)
	case r.Size != nil:
		return *r.Size
	}
	return defaultBehaviorResult
}

// Timeline is the course of one attempt of a CUSTOM job. It depends only on the definition and the attempt, so it is the same on every
// worker. The time scale does not apply to the times of a Timeline.
type Timeline struct {
	Duration time.Duration   // duration with jitter; the progress steps are spread over it
	End      time.Duration   // end of the attempt; less than Duration after an early failure
	Failure  *PlannedFailure // nil if it succeeds
	Events   []PlannedEvent  // events in the order of their times, none after End
}

// Timeline returns the course of an attempt of a CUSTOM job. Jitter may shorten the attempt. Events that were planned for a later time
// are then emitted at its end. After an early failure, no more events are emitted.
func (d Definition) Timeline(attempt int) Timeline {
	b := d.Behavior
	t := Timeline{Duration: b.Duration, Failure: b.FailureOf(attempt)}
	if b.Jitter > 0 {
		random := rand.New(rand.NewPCG(uint64(d.Seed), uint64(attempt)))
		t.Duration += time.Duration((2*random.Float64() - 1) * float64(b.Jitter))
	}
	t.End = t.Duration
	early := t.Failure != nil && t.Failure.After != nil
	if early {
		t.End = *t.Failure.After
	}
	for _, e := range b.Emit {
		if early && e.After > t.End {
			continue
		}
		e.After = min(e.After, t.End)
		t.Events = append(t.Events, e)
	}
	slices.SortStableFunc(t.Events, func(x, y PlannedEvent) int { return cmp.Compare(x.After, y.After) })
	return t
}

func (p *PlannedFailure) failure(attempt int, b Backoff) *Failure {
	f := NewFailure(CustomFailed, attempt, b)
	q := p.Problem
	if q.Retryable != nil && !*q.Retryable {
		f.Retryable, f.RetryAfter, f.Code = false, 0, CodeInternal
	}
	f.RetryAfter, f.Code = cmp.Or(q.RetryAfter, f.RetryAfter), cmp.Or(q.Code, f.Code)
	f.Stage, f.Detail = cmp.Or(q.Stage, f.Stage), cmp.Or(q.Detail, f.Detail)
	return f
}

// FailAsPlanned ends the attempt with a planned failure. The wait before an automatic retry is the planned retry_after, if there is one.
func (h Held) FailAsPlanned(p *PlannedFailure, b Backoff, random float64) Finish {
	b = h.Retry.backoff(b)
	wait := b.Wait(h.Attempt, random)
	if p.Problem.RetryAfter > 0 {
		wait = time.Duration(p.Problem.RetryAfter) * time.Second
	}
	return h.end(p.failure(h.Attempt, b), wait)
}

// RetryWait returns the wait before the next attempt of the failed job j. A planned retry_after counts from the end of the attempt
// (async-problem-details, section 3.7). A manual retry therefore waits only for the rest of retry_after.
func (j *Job) RetryWait(now time.Time, b Backoff, random float64) time.Duration {
	if j.Failure != nil && j.Failure.Reason == CustomFailed && j.FinishedAt != nil {
		if p := j.Definition.FailureOf(j.Attempt); p != nil && p.Problem.RetryAfter > 0 {
			return max(0, j.FinishedAt.Add(time.Duration(p.Problem.RetryAfter)*time.Second).Sub(now))
		}
	}
	return j.Backoff(b).Wait(j.Attempt, random)
}

func (p *PlannedProblem) applyTo(d *Document) {
	d.Type, d.Title = cmp.Or(p.Type, d.Type), cmp.Or(p.Title, d.Title)
	d.Status, d.Detail = cmp.Or(p.Status, d.Status), cmp.Or(p.Detail, d.Detail)
	d.extensions = p.Extensions
}

func (b *Behavior) valid() bool {
	const most = 25 * time.Hour
	if b == nil || b.Duration < 0 || b.Jitter < 0 || b.Jitter > b.Duration || b.Duration > most || b.Steps < 0 || b.Steps > MaxBehaviorSteps {
		return false
	}
	return b.MemoryBytes <= MaxBehaviorMemory && b.IOBytes <= MaxBehaviorIO
}
