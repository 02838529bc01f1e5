package job

import "time"

// Kind is a kind of synthetic work in the catalogue (API contract, section 6).
type Kind string

// Work kinds.
const (
	SuccessFast                 Kind = "SUCCESS_FAST"
	SuccessNormal               Kind = "SUCCESS_NORMAL"
	SuccessSlow                 Kind = "SUCCESS_SLOW"
	FailImmediate               Kind = "FAIL_IMMEDIATE"
	FailAfterProgress           Kind = "FAIL_AFTER_PROGRESS"
	FailAfterRetryable          Kind = "FAIL_AFTER_RETRYABLE"
	RunsLong                    Kind = "RUNS_LONG"
	RunsOverTimeout             Kind = "RUNS_OVER_TIMEOUT"
	CPUBurst                    Kind = "CPU_BURST"
	MemorySpike                 Kind = "MEMORY_SPIKE"
	IOHeavy                     Kind = "IO_HEAVY"
	ManySmallOutputs            Kind = "MANY_SMALL_OUTPUTS"
	LargeOutput                 Kind = "LARGE_OUTPUT"
	CancelBeforeStart           Kind = "CANCEL_BEFORE_START"
	CancelDuringRun             Kind = "CANCEL_DURING_RUN"
	RetryOnFail                 Kind = "RETRY_ON_FAIL"
	RetryLimitReached           Kind = "RETRY_LIMIT_REACHED"
	DuplicateSubmitSameKey      Kind = "DUPLICATE_SUBMIT_SAME_KEY"
	DuplicateSubmitDifferentKey Kind = "DUPLICATE_SUBMIT_DIFFERENT_KEY"
	WebhookSuccess              Kind = "WEBHOOK_SUCCESS"
	WebhookTimeout              Kind = "WEBHOOK_TIMEOUT"
	Webhook5xx                  Kind = "WEBHOOK_5XX"
	WebhookRetriesExhausted     Kind = "WEBHOOK_RETRIES_EXHAUSTED"
	WebhookSlowReceiver         Kind = "WEBHOOK_SLOW_RECEIVER"
	ScheduledOnTime             Kind = "SCHEDULED_ON_TIME"
	ScheduledLateRecovery       Kind = "SCHEDULED_LATE_RECOVERY"
	ScheduledFarFuture          Kind = "SCHEDULED_FAR_FUTURE"
	PayloadSmall                Kind = "PAYLOAD_SMALL"
	PayloadMedium               Kind = "PAYLOAD_MEDIUM"
	PayloadLarge                Kind = "PAYLOAD_LARGE"
	PayloadInvalid              Kind = "PAYLOAD_INVALID"
)

// Rejected is the expected outcome of PAYLOAD_INVALID, which is refused at submission.
const Rejected = "REJECTED"

const kib = 1024

// KindSpec is one row of the catalogue.
type KindSpec struct {
	Kind        Kind
	DurationMS  int64  // milliseconds of work, before the time scale applies
	ShouldFail  bool   // whether the catalogue lists the kind as failing
	PayloadSize int    // bytes of the result body
	Expected    string // the final State of attempt 1, or Rejected

	// Reason is the failure, "" for kinds that do not fail.
	Reason Reason
	// SucceedsOnAttempt is the first attempt that succeeds; 0 if ShouldFail is false or every attempt fails.
	SucceedsOnAttempt int
}

// catalogue is the table of work kinds (API contract, section 6). The duration of RUNS_OVER_TIMEOUT depends on the configured limit, see
// SpecOf.
var catalogue = []KindSpec{
	{Kind: SuccessFast, DurationMS: 1_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: SuccessNormal, DurationMS: 10_000, PayloadSize: 16 * kib, Expected: "SUCCEEDED"},
	{Kind: SuccessSlow, DurationMS: 90_000, PayloadSize: 32 * kib, Expected: "SUCCEEDED"},
	{Kind: FailImmediate, DurationMS: 500, ShouldFail: true, PayloadSize: 1 * kib, Expected: "FAILED", Reason: FailedImmediately},
	{Kind: FailAfterProgress, DurationMS: 20_000, ShouldFail: true, PayloadSize: 8 * kib, Expected: "FAILED", Reason: FailedAfterProgress},
	{Kind: FailAfterRetryable, DurationMS: 5_000, ShouldFail: true, PayloadSize: 8 * kib, Expected: "FAILED", Reason: DependencyFailed},
	{Kind: RunsLong, DurationMS: 110_000, PayloadSize: 32 * kib, Expected: "SUCCEEDED"},
	{Kind: RunsOverTimeout, ShouldFail: true, PayloadSize: 8 * kib, Expected: "FAILED", Reason: TimedOut},
	{Kind: CPUBurst, DurationMS: 8_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: MemorySpike, DurationMS: 12_000, PayloadSize: 64 * kib, Expected: "SUCCEEDED"},
	{Kind: IOHeavy, DurationMS: 15_000, PayloadSize: 32 * kib, Expected: "SUCCEEDED"},
	{Kind: ManySmallOutputs, DurationMS: 9_000, PayloadSize: 16 * kib, Expected: "SUCCEEDED"},
	{Kind: LargeOutput, DurationMS: 9_000, PayloadSize: 256 * kib, Expected: "SUCCEEDED"},
	{Kind: CancelBeforeStart, DurationMS: 5_000, PayloadSize: 4 * kib, Expected: "CANCELED"},
	{Kind: CancelDuringRun, DurationMS: 10_000, PayloadSize: 4 * kib, Expected: "CANCELED"},
	{Kind: RetryOnFail, DurationMS: 3_000, ShouldFail: true, PayloadSize: 4 * kib, Expected: "FAILED", Reason: FailedOnce,
		SucceedsOnAttempt: 2},
	{Kind: RetryLimitReached, DurationMS: 3_000, ShouldFail: true, PayloadSize: 4 * kib, Expected: "FAILED", Reason: FailedAgain},
	{Kind: DuplicateSubmitSameKey, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: DuplicateSubmitDifferentKey, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: WebhookSuccess, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: WebhookTimeout, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: Webhook5xx, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: WebhookRetriesExhausted, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: WebhookSlowReceiver, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: ScheduledOnTime, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: ScheduledLateRecovery, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: ScheduledFarFuture, DurationMS: 2_000, PayloadSize: 4 * kib, Expected: "SUCCEEDED"},
	{Kind: PayloadSmall, DurationMS: 2_000, PayloadSize: 1 * kib, Expected: "SUCCEEDED"},
	{Kind: PayloadMedium, DurationMS: 2_000, PayloadSize: 16 * kib, Expected: "SUCCEEDED"},
	{Kind: PayloadLarge, DurationMS: 2_000, PayloadSize: 256 * kib, Expected: "SUCCEEDED"},
	{Kind: PayloadInvalid, Expected: Rejected},
}

var specs = func() map[Kind]KindSpec {
	m := make(map[Kind]KindSpec, len(catalogue))
	for _, s := range catalogue {
		m[s.Kind] = s
	}
	return m
}()

// Kinds lists the 31 kinds in the order of the catalogue.
func Kinds() []Kind {
	kinds := make([]Kind, len(catalogue))
	for i, s := range catalogue {
		kinds[i] = s.Kind
	}
	return kinds
}

// SpecOf returns the catalogue row of k, and whether k is in the catalogue. The duration of RUNS_OVER_TIMEOUT depends on maxRuntime.
func SpecOf(k Kind, maxRuntime time.Duration) (KindSpec, bool) {
	s, ok := specs[k]
	if k == RunsOverTimeout {
		s.DurationMS = maxRuntime.Milliseconds() + 1_000
	}
	return s, ok
}

// Valid reports whether k is in the catalogue.
func (k Kind) Valid() bool {
	_, ok := specs[k]
	return ok
}

// FailsOn reports whether the given attempt of a job of kind k fails according to the catalogue, and why. The first attempt is 1.
func (k Kind) FailsOn(attempt int) (Reason, bool) {
	s := specs[k]
	if !s.ShouldFail || (s.SucceedsOnAttempt > 0 && attempt >= s.SucceedsOnAttempt) {
		return "", false
	}
	return s.Reason, true
}
