package judge

import "time"

// Codes of failures (section 10).
const (
	codeInternal   = "RFA_INTERNAL"
	codeDependency = "RFA_DEPENDENCY_TIMEOUT"
	codeTimeout    = "RFA_EXEC_TIMEOUT"
	codeWorkerLost = "RFA_EXEC_WORKER_UNAVAILABLE" // lost or shut down
)

// payloadInvalid is the work kind that every submission is refused with.
const payloadInvalid = "PAYLOAD_INVALID"

// emitEvent is the type of jobs that publish an event of the client's own.
const emitEvent = "EMIT_EVENT"

// workKind is a row of the catalogue (section 6): what an attempt must come to
// when nobody disturbs it.
type workKind struct {
	duration time.Duration // before the time scale; 0: depends on the service's settings
	result   int           // bytes of the result of a success
	fails    int           // how many attempts fail: none, the first, or always
	code     string        // of its failures
}

const always = 1 << 30

func succeeds(milliseconds int64, kib int) workKind {
	return workKind{duration: time.Duration(milliseconds) * time.Millisecond, result: kib << 10}
}

func fails(milliseconds int64, kib, attempts int, code string) workKind {
	kind := succeeds(milliseconds, kib)
	kind.fails, kind.code = attempts, code
	return kind
}

// retryable reports whether its failures advise to try again.
func (k workKind) retryable() bool { return k.code == codeDependency || k.code == codeTimeout }

// catalogue has the 31 kinds but PAYLOAD_INVALID, of which there never is a job.
var catalogue = map[string]workKind{
	"SUCCESS_FAST":                   succeeds(1_000, 4),
	"SUCCESS_NORMAL":                 succeeds(10_000, 16),
	"SUCCESS_SLOW":                   succeeds(90_000, 32),
	"FAIL_IMMEDIATE":                 fails(500, 1, always, codeInternal),
	"FAIL_AFTER_PROGRESS":            fails(20_000, 8, always, codeInternal),
	"FAIL_AFTER_RETRYABLE":           fails(5_000, 8, always, codeDependency),
	"RUNS_LONG":                      succeeds(110_000, 32),
	"RUNS_OVER_TIMEOUT":              fails(0, 8, always, codeTimeout),
	"CPU_BURST":                      succeeds(8_000, 4),
	"MEMORY_SPIKE":                   succeeds(12_000, 64),
	"IO_HEAVY":                       succeeds(15_000, 32),
	"MANY_SMALL_OUTPUTS":             succeeds(9_000, 16),
	"LARGE_OUTPUT":                   succeeds(9_000, 256),
	"CANCEL_BEFORE_START":            succeeds(5_000, 4),
	"CANCEL_DURING_RUN":              succeeds(10_000, 4),
	"RETRY_ON_FAIL":                  fails(3_000, 4, 1, codeDependency),
	"RETRY_LIMIT_REACHED":            fails(3_000, 4, always, codeDependency),
	"DUPLICATE_SUBMIT_SAME_KEY":      succeeds(2_000, 4),
	"DUPLICATE_SUBMIT_DIFFERENT_KEY": succeeds(2_000, 4),
	"WEBHOOK_SUCCESS":                succeeds(2_000, 4),
	"WEBHOOK_TIMEOUT":                succeeds(2_000, 4),
	"WEBHOOK_5XX":                    succeeds(2_000, 4),
	"WEBHOOK_RETRIES_EXHAUSTED":      succeeds(2_000, 4),
	"WEBHOOK_SLOW_RECEIVER":          succeeds(2_000, 4),
	"SCHEDULED_ON_TIME":              succeeds(2_000, 4),
	"SCHEDULED_LATE_RECOVERY":        succeeds(2_000, 4),
	"SCHEDULED_FAR_FUTURE":           succeeds(2_000, 4),
	"PAYLOAD_SMALL":                  succeeds(2_000, 1),
	"PAYLOAD_MEDIUM":                 succeeds(2_000, 16),
	"PAYLOAD_LARGE":                  succeeds(2_000, 256),
}

// leastLimit is what the service's execution limit is never below, whatever the
// time scale.
const leastLimit = time.Second
