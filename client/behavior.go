package client

import (
	"encoding/json"
	"maps"
	"time"
)

// CustomParams are the params of a job of the kind KindCustom.
type CustomParams struct {
	Behavior Behavior `json:"behavior"`
}

// Behavior is what a job of the kind KindCustom does. What is zero is left out: the
// zero Behavior succeeds at once.
type Behavior struct {
	Seed        *int64           `json:"seed,omitempty"` // the same seed gives the same run; nil: the time of the request
	Duration    Span             `json:"duration,omitzero"`
	Jitter      Span             `json:"jitter,omitzero"`    // the most that an attempt is shorter or longer
	BeginAt     float64          `json:"begin_at,omitempty"` // share of the duration that an attempt has behind it when it begins
	Steps       int              `json:"steps,omitempty"`    // of progress
	Failures    []PlannedFailure `json:"failures,omitempty"`
	Result      *PlannedResult   `json:"result,omitempty"`
	Emit        []PlannedEvent   `json:"emit,omitempty"`
	CPU         float64          `json:"cpu,omitempty"` // share of the time that it uses a CPU, 0 to 1
	MemoryBytes int              `json:"memory_bytes,omitempty"`
	IOBytes     int              `json:"io_bytes,omitempty"`
}

// PlannedFailure says which attempts fail, after which time and how.
type PlannedFailure struct {
	Attempts []int          `json:"attempts"`
	After    *Span          `json:"after,omitempty"` // nil: at the end of the duration
	Problem  PlannedProblem `json:"problem"`
}

// PlannedProblem is what the outcome document of a planned failure says. What is
// zero, the service fills in.
type PlannedProblem struct {
	Type       string
	Title      string
	Status     int
	Detail     string
	Code       string
	Retryable  *bool // nil: it is
	RetryAfter int   // seconds
	Stage      string
	Extensions map[string]any // further members
}

// MarshalJSON writes the extensions beside the other members.
func (p PlannedProblem) MarshalJSON() ([]byte, error) {
	members := maps.Clone(p.Extensions)
	if members == nil {
		members = map[string]any{}
	}
	for name, value := range map[string]string{"type": p.Type, "title": p.Title, "detail": p.Detail, "code": p.Code, "stage": p.Stage} {
		if value != "" {
			members[name] = value
		}
	}
	for name, value := range map[string]int{"status": p.Status, "retryAfter": p.RetryAfter} {
		if value != 0 {
			members[name] = value
		}
	}
	if p.Retryable != nil {
		members["retryable"] = *p.Retryable
	}
	return json.Marshal(members)
}

// PlannedResult is the result of a success: Size bytes, or Body as it stands.
type PlannedResult struct {
	MediaType string  `json:"media_type,omitempty"`
	Size      int     `json:"size,omitempty"`
	Body      *string `json:"body,omitempty"`
}

// PlannedEvent is an event that each attempt emits once it has run for so long.
type PlannedEvent struct {
	Name  string          `json:"name"`
	Data  json.RawMessage `json:"data,omitempty"`
	After Span            `json:"after,omitzero"`
}

// Span is a duration as the service reads it, such as "1.5s".
type Span time.Duration

// MarshalText writes s as Go does.
func (s Span) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }
