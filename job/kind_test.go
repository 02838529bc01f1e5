package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const maxRuntime = 120 * time.Second

// row is a line of section 6's catalogue: its sizes are in KB.
type row struct {
	kind       job.Kind
	durationMS int64
	shouldFail bool
	sizeKB     int
	expected   string
}

// The catalogue of section 6, in its order.
var catalogue = []row{
	{"SUCCESS_FAST", 1_000, false, 4, "SUCCEEDED"},
	{"SUCCESS_NORMAL", 10_000, false, 16, "SUCCEEDED"},
	{"SUCCESS_SLOW", 90_000, false, 32, "SUCCEEDED"},
	{"FAIL_IMMEDIATE", 500, true, 1, "FAILED"},
	{"FAIL_AFTER_PROGRESS", 20_000, true, 8, "FAILED"},
	{"FAIL_AFTER_RETRYABLE", 5_000, true, 8, "FAILED"},
	{"RUNS_LONG", 110_000, false, 32, "SUCCEEDED"},
	{"RUNS_OVER_TIMEOUT", 120_000 + 1_000, true, 8, "FAILED"},
	{"CPU_BURST", 8_000, false, 4, "SUCCEEDED"},
	{"MEMORY_SPIKE", 12_000, false, 64, "SUCCEEDED"},
	{"IO_HEAVY", 15_000, false, 32, "SUCCEEDED"},
	{"MANY_SMALL_OUTPUTS", 9_000, false, 16, "SUCCEEDED"},
	{"LARGE_OUTPUT", 9_000, false, 256, "SUCCEEDED"},
	{"CANCEL_BEFORE_START", 5_000, false, 4, "CANCELED"},
	{"CANCEL_DURING_RUN", 10_000, false, 4, "CANCELED"},
	{"RETRY_ON_FAIL", 3_000, true, 4, "FAILED"},
	{"RETRY_LIMIT_REACHED", 3_000, true, 4, "FAILED"},
	{"DUPLICATE_SUBMIT_SAME_KEY", 2_000, false, 4, "SUCCEEDED"},
	{"DUPLICATE_SUBMIT_DIFFERENT_KEY", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_SUCCESS", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_TIMEOUT", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_5XX", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_RETRIES_EXHAUSTED", 2_000, false, 4, "SUCCEEDED"},
	{"WEBHOOK_SLOW_RECEIVER", 2_000, false, 4, "SUCCEEDED"},
	{"SCHEDULED_ON_TIME", 2_000, false, 4, "SUCCEEDED"},
	{"SCHEDULED_LATE_RECOVERY", 2_000, false, 4, "SUCCEEDED"},
	{"SCHEDULED_FAR_FUTURE", 2_000, false, 4, "SUCCEEDED"},
	{"PAYLOAD_SMALL", 2_000, false, 1, "SUCCEEDED"},
	{"PAYLOAD_MEDIUM", 2_000, false, 16, "SUCCEEDED"},
	{"PAYLOAD_LARGE", 2_000, false, 256, "SUCCEEDED"},
	{"PAYLOAD_INVALID", 0, false, 0, "REJECTED"},
}

func TestCatalogue(t *testing.T) {
	t.Parallel()
	require.Len(t, catalogue, 31)
	require.Len(t, job.Kinds(), 31)
	for i, want := range catalogue {
		require.Equal(t, want.kind, job.Kinds()[i])
		require.True(t, want.kind.Valid())
		got, ok := job.SpecOf(want.kind, maxRuntime)
		require.True(t, ok)
		require.Equal(t, want, row{got.Kind, got.DurationMS, got.ShouldFail, got.PayloadSize / 1024, got.Expected})
		require.Zero(t, got.PayloadSize%1024)
		require.Equal(t, want.shouldFail, got.Reason != "", "%s: a failing kind has a reason, no other has", want.kind)
	}
}

func TestRunsOverTimeoutFollowsTheLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[time.Duration]int64{
		time.Second: 2_000, 1500 * time.Millisecond: 2_500, time.Hour: 3_601_000,
	} {
		s, _ := job.SpecOf(job.RunsOverTimeout, limit)
		require.Equal(t, want, s.DurationMS)
		other, _ := job.SpecOf(job.RunsLong, limit)
		require.EqualValues(t, 110_000, other.DurationMS)
	}
}

func TestUnknownKinds(t *testing.T) {
	t.Parallel()
	for _, k := range []job.Kind{"", "success_fast", "SUCCESS_FAST ", "DANCE"} {
		require.False(t, k.Valid())
		_, ok := job.SpecOf(k, maxRuntime)
		require.False(t, ok)
		_, fails := k.FailsOn(1)
		require.False(t, fails)
	}
}

func TestFailsOn(t *testing.T) {
	t.Parallel()
	reasons := map[job.Kind]job.Reason{
		"FAIL_IMMEDIATE":       "failed-immediately",
		"FAIL_AFTER_PROGRESS":  "failed-after-progress",
		"FAIL_AFTER_RETRYABLE": "dependency-failed",
		"RUNS_OVER_TIMEOUT":    "job-timed-out",
		"RETRY_ON_FAIL":        "failed-once",
		"RETRY_LIMIT_REACHED":  "failed-again",
	}
	for _, k := range job.Kinds() {
		for attempt := 1; attempt <= 5; attempt++ {
			want := reasons[k]
			if k == "RETRY_ON_FAIL" && attempt > 1 {
				want = ""
			}
			got, fails := k.FailsOn(attempt)
			require.Equal(t, want, got, "%s, attempt %d", k, attempt)
			require.Equal(t, want != "", fails, "%s, attempt %d", k, attempt)
		}
	}
}
