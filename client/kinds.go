package client

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
