package client

import (
	"encoding/json"
	"maps"
	"time"
)

// The work kinds of the catalogue, for JobRequest.WorkKind. docs/reference/api.md says
// what each does.
const (
	KindSuccessFast                 = "SUCCESS_FAST"
	KindSuccessNormal               = "SUCCESS_NORMAL"
	KindSuccessSlow                 = "SUCCESS_SLOW"
	KindFailImmediate               = "FAIL_IMMEDIATE"
	KindFailAfterProgress           = "FAIL_AFTER_PROGRESS"
	KindFailAfterRetryable          = "FAIL_AFTER_RETRYABLE"
	KindRunsLong                    = "RUNS_LONG"
	KindRunsOverTimeout             = "RUNS_OVER_TIMEOUT"
	KindCPUBurst                    = "CPU_BURST"
	KindMemorySpike                 = "MEMORY_SPIKE"
	KindIOHeavy                     = "IO_HEAVY"
	KindManySmallOutputs            = "MANY_SMALL_OUTPUTS"
	KindLargeOutput                 = "LARGE_OUTPUT"
	KindCancelBeforeStart           = "CANCEL_BEFORE_START"
	KindCancelDuringRun             = "CANCEL_DURING_RUN"
	KindRetryOnFail                 = "RETRY_ON_FAIL"
	KindRetryLimitReached           = "RETRY_LIMIT_REACHED"
	KindDuplicateSubmitSameKey      = "DUPLICATE_SUBMIT_SAME_KEY"
	KindDuplicateSubmitDifferentKey = "DUPLICATE_SUBMIT_DIFFERENT_KEY"
	KindWebhookSuccess              = "WEBHOOK_SUCCESS"
	KindWebhookTimeout              = "WEBHOOK_TIMEOUT"
	KindWebhook5xx                  = "WEBHOOK_5XX"
	KindWebhookRetriesExhausted     = "WEBHOOK_RETRIES_EXHAUSTED"
	KindWebhookSlowReceiver         = "WEBHOOK_SLOW_RECEIVER"
	KindScheduledOnTime             = "SCHEDULED_ON_TIME"
	KindScheduledLateRecovery       = "SCHEDULED_LATE_RECOVERY"
	KindScheduledFarFuture          = "SCHEDULED_FAR_FUTURE"
	KindPayloadSmall                = "PAYLOAD_SMALL"
	KindPayloadMedium               = "PAYLOAD_MEDIUM"
	KindPayloadLarge                = "PAYLOAD_LARGE"
	KindPayloadInvalid              = "PAYLOAD_INVALID"
)

// KindCustom is the work kind that does what its params say, where a test bed
// is on: see CustomParams.
const KindCustom = "CUSTOM"

// Kind is a work kind of the catalogue: what its jobs do at the time scale 1.
type Kind struct {
	Name     string `json:"work_kind"`
	Duration string `json:"duration"` // of an attempt
	Result   string `json:"result"`   // its size
	Ends     string `json:"ends"`     // and what may have to be done for that
}

// Kinds is the catalogue.
var Kinds = []Kind{
	{KindSuccessFast, "1,000 ms", "4 KiB", "SUCCEEDED"},
	{KindSuccessNormal, "10,000 ms", "16 KiB", "SUCCEEDED"},
	{KindSuccessSlow, "90,000 ms", "32 KiB", "SUCCEEDED"},
	{KindFailImmediate, "500 ms", "1 KiB", "FAILED"},
	{KindFailAfterProgress, "20,000 ms", "8 KiB", "FAILED"},
	{KindFailAfterRetryable, "5,000 ms", "8 KiB", "FAILED (retryable)"},
	{KindRunsLong, "110,000 ms", "32 KiB", "SUCCEEDED"},
	{KindRunsOverTimeout, "limit + 1,000 ms", "8 KiB", "FAILED (timed out)"},
	{KindCPUBurst, "8,000 ms", "4 KiB", "SUCCEEDED"},
	{KindMemorySpike, "12,000 ms", "64 KiB", "SUCCEEDED"},
	{KindIOHeavy, "15,000 ms", "32 KiB", "SUCCEEDED"},
	{KindManySmallOutputs, "9,000 ms", "16 KiB", "SUCCEEDED"},
	{KindLargeOutput, "9,000 ms", "256 KiB", "SUCCEEDED"},
	{KindCancelBeforeStart, "5,000 ms", "4 KiB", "CANCELED if you cancel it before it starts, else SUCCEEDED"},
	{KindCancelDuringRun, "10,000 ms", "4 KiB", "CANCELED if you cancel it while it runs, else SUCCEEDED"},
	{KindRetryOnFail, "3,000 ms", "4 KiB", "FAILED, then SUCCEEDED on a retry"},
	{KindRetryLimitReached, "3,000 ms", "4 KiB", "FAILED on every attempt"},
	{KindDuplicateSubmitSameKey, "2,000 ms", "4 KiB", "SUCCEEDED; submit it twice with one key"},
	{KindDuplicateSubmitDifferentKey, "2,000 ms", "4 KiB", "SUCCEEDED; submit it twice with two keys"},
	{KindWebhookSuccess, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindWebhookTimeout, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindWebhook5xx, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindWebhookRetriesExhausted, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindWebhookSlowReceiver, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindScheduledOnTime, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindScheduledLateRecovery, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindScheduledFarFuture, "2,000 ms", "4 KiB", "SUCCEEDED"},
	{KindPayloadSmall, "2,000 ms", "1 KiB", "SUCCEEDED"},
	{KindPayloadMedium, "2,000 ms", "16 KiB", "SUCCEEDED"},
	{KindPayloadLarge, "2,000 ms", "256 KiB", "SUCCEEDED"},
	{KindPayloadInvalid, "-", "-", "REJECTED with 400"},
}

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
