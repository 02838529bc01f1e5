package job

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// MaxViolations limits the listed violations of a request. Normally only the invalid items of a batch are refused. If the items have more
// than MaxViolations violations, the whole batch is refused. This keeps the response small.
const MaxViolations = 100

// Request is a decoded request for a job. Violations lists the values that decoding refused. The response reports them together with the
// violations that Check finds. The other fields do not contain refused values.
type Request struct {
	ClientID    ID
	RequestID   string
	ReceivedAt  time.Time // also the seed for random values of the job
	Type        Type
	WorkKind    Kind       // "" for a random kind
	ExecutionAt *time.Time // DEFERRED only
	Callback    string
	Params      json.RawMessage
	AutoRetry   bool
	Retry       *RetryPolicy // nil means the service's settings
	Emit        *Emission
	Behavior    *Behavior // behavior of a CUSTOM job; nil means the zero Behavior

	IdempotencyKey string
	Hash           [32]byte // hash of the canonical request without the idempotency key

	CorrelationID string
	TraceParent   string
	Language      string

	Violations []Violation
	Unlisted   int  // number of violations that decoding found but did not list
	Malformed  bool // at least one violation is in the structure of the body, not in a value

	// Warnings concern accepted values and have no effect. They depend only on the request, so a repeated request gets the same warnings.
	Warnings []Violation
}

// Refusal returns the error for r with the violations. It lists at most MaxViolations and the number of omitted ones.
func (r Request) Refusal(violations []Violation) *Error {
	listed := violations[:min(len(violations), MaxViolations)]
	err := Invalid(listed...)
	if r.Malformed {
		err = Malformed("The body does not have the expected form.", listed...)
	}
	if more := r.Unlisted + len(violations) - len(listed); more > 0 {
		note := " And " + Grouped(more) + " more, which are not listed."
		err.Detail = PlainText(err.Detail, MaxDetailBytes-len(note)) + note
	}
	return err
}

// Emitted returns how many events the job may emit in all attempts. `attempts` is the default number of attempts. An EMIT_EVENT job emits
// one event. A CUSTOM job emits its planned events in each attempt.
func (r *Request) Emitted(attempts int) (n int) {
	if r.Emit != nil {
		n = 1
	}
	if r.Behavior != nil {
		n += r.Retry.attempts(attempts) * len(r.Behavior.Emit)
	}
	return n
}

// Check returns the violations of r, except those that depend on the current time. TooLate checks the time separately, because a repeated
// request must get its first response even after execution_at.
func (c Catalogue) Check(r Request) []Violation {
	violations := append([]Violation(nil), r.Violations...)
	add := func(pointer, detail string) {
		violations = append(violations, Violation{Pointer: pointer, Detail: detail})
	}
	if r.Type.Valid() && !slices.Contains(c.Types, r.Type) {
		add("/type", "This type is disabled on this server. It allows "+names(c.Types)+".")
	}
	switch {
	case r.WorkKind == PayloadInvalid:
		add("/work_kind", "PAYLOAD_INVALID is always refused: that is its purpose.")
	case r.WorkKind.Valid() && !slices.Contains(c.Kinds, r.WorkKind):
		add("/work_kind", "This work kind is disabled on this server. It allows "+names(c.Kinds)+".")
	}
	if r.WorkKind == Custom {
		violations = append(violations, c.checkCustom(r)...)
	}
	switch {
	case r.Type == Deferred && r.ExecutionAt == nil && !pointsAt(r.Violations, "/execution_at"):
		add("/execution_at", "A DEFERRED job requires an execution_at.")
	case (r.Type == Execute || r.Type == EmitEvent) && r.ExecutionAt != nil:
		add("/execution_at", "Only a DEFERRED job has an execution_at; leave it out or use type DEFERRED.")
	}
	if r.Emit != nil && r.Type.Valid() && r.Type != EmitEvent {
		add("/event", "Only an EMIT_EVENT job has an event.")
	}
	return violations
}

// checkCustom also refuses every CUSTOM job if the service is not a test bed. Decoding refuses such jobs, too. But the stored request of
// a schedule is not decoded again for each run.
func (c Catalogue) checkCustom(r Request) []Violation {
	switch {
	case pointsAt(r.Violations, "/work_kind"):
		return nil
	case !c.TestBed:
		return []Violation{{Pointer: "/work_kind", Detail: "Unknown work kind."}}
	}
	return r.Behavior.Check(c.MaxRuntime)
}

// clockSkew is how far in the past an execution_at may be, because the client's clock may be slow (API contract, section 10). Such a job is
// due at once.
const clockSkew = time.Second

// TooLate reports whether execution_at is more than clockSkew in the past (API contract, section 10), and returns the violation. For
// EXECUTE and EMIT_EVENT jobs, Check already refuses an execution_at.
func (r Request) TooLate(now time.Time) (Violation, bool) {
	if r.ExecutionAt == nil || !r.ExecutionAt.Before(now.Add(-clockSkew)) || r.Type == Execute || r.Type == EmitEvent {
		return Violation{}, false
	}
	return Violation{Pointer: "/execution_at", Detail: "The time is in the past. It must be in the future; " +
		"up to one second in the past counts as now. The server's time is " + now.UTC().Format(time.RFC3339) + "."}, true
}

// TooFar reports whether execution_at is more than `limit` in the future, and returns the violation. A `limit` of 0 means no limit. The
// repetition of an accepted request passes this check, because execution_at is nearer by then.
func (r Request) TooFar(now time.Time, limit time.Duration) (Violation, bool) {
	if limit == 0 || r.ExecutionAt == nil || !r.ExecutionAt.After(now.Add(limit)) || r.Type == Execute || r.Type == EmitEvent {
		return Violation{}, false
	}
	return Violation{Pointer: "/execution_at", Detail: "The time is too far in the future. On this server the latest possible time is " +
		now.Add(limit).UTC().Format(time.RFC3339) + "."}, true
}

func names[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, v := range list {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

func pointsAt(violations []Violation, pointer string) bool {
	return slices.ContainsFunc(violations, func(v Violation) bool { return v.Pointer == pointer })
}

// RequestKey is an idempotency key. A request with the same key and a different Hash is not a repetition.
type RequestKey struct {
	ClientID ID     // zero for a request without a client's credentials
	Scope    string // each scope has its own keys
	Key      string
	Hash     [32]byte // hash of method, path and body
}

// Answer is the stored response to a request with an idempotency key. It must not contain secrets, because it is stored unchanged.
type Answer struct {
	Status  int // 0 if only Subject is stored
	Header  map[string]string
	Body    []byte
	Subject ID // id of the created resource, or zero if there is none
}
