package judge

import "time"

// Codes of failures that have a reason besides the work itself.
const (
	codeTimeout    = "RFA_EXEC_TIMEOUT"
	codeWorkerLost = "RFA_EXEC_WORKER_UNAVAILABLE" // lost or shut down
)

// workKind is a row of the catalogue (section 6): what an attempt must come to
// when nobody disturbs it.
type workKind struct {
	duration  time.Duration // before the time scale; 0: depends on the service's settings
	fails     int           // how many attempts fail: none, the first, or always
	retryable bool          // whether its failures advise to try again
	timesOut  bool
}

const always = 1 << 30

func succeeds(milliseconds int64) workKind {
	return workKind{duration: time.Duration(milliseconds) * time.Millisecond}
}

func fails(milliseconds int64, attempts int, retryable bool) workKind {
	return workKind{duration: time.Duration(milliseconds) * time.Millisecond, fails: attempts, retryable: retryable}
}

// catalogue has the 31 kinds but PAYLOAD_INVALID, of which there never is a job.
var catalogue = map[string]workKind{
	"SUCCESS_FAST":                   succeeds(1_000),
	"SUCCESS_NORMAL":                 succeeds(10_000),
	"SUCCESS_SLOW":                   succeeds(90_000),
	"FAIL_IMMEDIATE":                 fails(500, always, false),
	"FAIL_AFTER_PROGRESS":            fails(20_000, always, false),
	"FAIL_AFTER_RETRYABLE":           fails(5_000, always, true),
	"RUNS_LONG":                      succeeds(110_000),
	"RUNS_OVER_TIMEOUT":              {fails: always, retryable: true, timesOut: true},
	"CPU_BURST":                      succeeds(8_000),
	"MEMORY_SPIKE":                   succeeds(12_000),
	"IO_HEAVY":                       succeeds(15_000),
	"MANY_SMALL_OUTPUTS":             succeeds(9_000),
	"LARGE_OUTPUT":                   succeeds(9_000),
	"CANCEL_BEFORE_START":            succeeds(5_000),
	"CANCEL_DURING_RUN":              succeeds(10_000),
	"RETRY_ON_FAIL":                  fails(3_000, 1, true),
	"RETRY_LIMIT_REACHED":            fails(3_000, always, true),
	"DUPLICATE_SUBMIT_SAME_KEY":      succeeds(2_000),
	"DUPLICATE_SUBMIT_DIFFERENT_KEY": succeeds(2_000),
	"WEBHOOK_SUCCESS":                succeeds(2_000),
	"WEBHOOK_TIMEOUT":                succeeds(2_000),
	"WEBHOOK_5XX":                    succeeds(2_000),
	"WEBHOOK_RETRIES_EXHAUSTED":      succeeds(2_000),
	"WEBHOOK_SLOW_RECEIVER":          succeeds(2_000),
	"SCHEDULED_ON_TIME":              succeeds(2_000),
	"SCHEDULED_LATE_RECOVERY":        succeeds(2_000),
	"SCHEDULED_FAR_FUTURE":           succeeds(2_000),
	"PAYLOAD_SMALL":                  succeeds(2_000),
	"PAYLOAD_MEDIUM":                 succeeds(2_000),
	"PAYLOAD_LARGE":                  succeeds(2_000),
}

// leastLimit is what the service's execution limit is never below, whatever the
// time scale.
const leastLimit = time.Second
