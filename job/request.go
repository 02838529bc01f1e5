package job

import (
	"encoding/json"
	"time"
)

// Request is a decoded request for a job. Decoding has checked its form;
// Violations holds what it found wrong with values, so that the caller is told
// of everything at once.
type Request struct {
	ClientID    ID
	RequestID   string
	ReceivedAt  time.Time // the seed of the definition
	Type        Type
	WorkKind    Kind       // "" to have one drawn
	ExecutionAt *time.Time // DEFERRED only
	Callback    string
	Params      json.RawMessage
	AutoRetry   bool
	Emit        *Emission

	IdempotencyKey string
	Hash           [32]byte // of the canonical request without the key

	CorrelationID string
	TraceParent   string
	Language      string

	Violations []Violation
}

// Check gives everything that is wrong with r's values under the catalogue c.
// What depends on the time is left to TooLate: a repeated request must find
// its first answer however late it comes.
func (c Catalogue) Check(r Request) []Violation {
	violations := append([]Violation(nil), r.Violations...)
	add := func(pointer, detail string) {
		violations = append(violations, Violation{Pointer: pointer, Detail: detail})
	}
	if r.Type.Valid() && !contains(c.Types, r.Type) {
		add("/type", "This type is switched off on this server.")
	}
	switch {
	case r.WorkKind == PayloadInvalid:
		add("/work_kind", "PAYLOAD_INVALID is always refused: that is its purpose.")
	case r.WorkKind.Valid() && !contains(c.Kinds, r.WorkKind):
		add("/work_kind", "This work kind is switched off on this server.")
	}
	switch {
	case r.Type == Deferred && r.ExecutionAt == nil && !pointsAt(r.Violations, "/execution_at"):
		add("/execution_at", "A DEFERRED job needs the time at which to run.")
	case (r.Type == Execute || r.Type == EmitEvent) && r.ExecutionAt != nil:
		add("/execution_at", "Only a DEFERRED job has an execution_at; leave it out or use type DEFERRED.")
	}
	if r.Emit != nil && r.Type.Valid() && r.Type != EmitEvent {
		add("/event", "Only an EMIT_EVENT job has an event.")
	}
	return violations
}

// TooLate gives the violation of a request whose execution_at is not in the
// future at now, and false otherwise (section 10).
func (r Request) TooLate(now time.Time) (Violation, bool) {
	if r.ExecutionAt == nil || r.ExecutionAt.After(now) {
		return Violation{}, false
	}
	return Violation{Pointer: "/execution_at", Detail: "The time must be in the future."}, true
}

func contains[T comparable](list []T, v T) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

func pointsAt(violations []Violation, pointer string) bool {
	for _, v := range violations {
		if v.Pointer == pointer {
			return true
		}
	}
	return false
}
