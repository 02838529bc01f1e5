package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestReasons(t *testing.T) {
	t.Parallel()
	type row struct {
		code      job.Code
		retryable bool
	}
	want := map[job.Reason]row{
		"failed-immediately":    {"RFA_INTERNAL", false},
		"failed-after-progress": {"RFA_INTERNAL", false},
		"dependency-failed":     {"RFA_DEPENDENCY_TIMEOUT", true},
		"failed-once":           {"RFA_DEPENDENCY_TIMEOUT", true},
		"failed-again":          {"RFA_DEPENDENCY_TIMEOUT", true},
		"job-timed-out":         {"RFA_EXEC_TIMEOUT", true},
		"worker-lost":           {"RFA_EXEC_WORKER_UNAVAILABLE", true},
		"worker-shutdown":       {"RFA_EXEC_WORKER_UNAVAILABLE", true},
		"worker-exhausted":      {"RFA_EXEC_WORKER_UNAVAILABLE", true},
		"definition-invalid":    {"RFA_INTERNAL", false},
		"output-invalid":        {"RFA_INTERNAL", false},
		"work-panicked":         {"RFA_INTERNAL", false},
		"custom-failure":        {"RFA_DEPENDENCY_TIMEOUT", true},
	}
	stages := []job.Stage{"validation", "authorization", "queuing", "processing", "rendering", "conversion", "storage", "delivery"}
	for i, s := range job.Stages {
		require.Equal(t, stages[i], s.Stage, "the draft's table 3, in its order")
		require.NotEmpty(t, s.About)
	}
	require.Len(t, job.Stages, len(stages))
	got := map[job.Reason]row{}
	for _, s := range job.Reasons {
		got[s.Reason] = row{s.Code, s.Retryable}
		require.Equal(t, s, s.Reason.Spec())
		require.Contains(t, stages, s.Stage, "a name of the draft's table 3")
		require.NotEmpty(t, s.Title, s.Reason)
		require.NotEmpty(t, s.Detail, s.Reason)
	}
	require.Equal(t, want, got)
	require.Len(t, job.Reasons, len(want), "each once")
	require.Equal(t, job.WorkPanicked.Spec(), job.Reason("unheard-of").Spec())
}

func TestNewFailure(t *testing.T) {
	t.Parallel()
	b := job.Backoff{Base: 1500 * time.Millisecond, Max: time.Minute}
	require.Equal(t, &job.Failure{
		Reason: job.TimedOut, Code: job.CodeTimeout, Retryable: true, RetryAfter: 3,
		Stage: job.StageProcessing, Detail: "The job ran longer than the execution limit.",
	}, job.NewFailure(job.TimedOut, 2, b))
	for _, s := range job.Reasons {
		for attempt := 1; attempt < 10; attempt++ {
			f := job.NewFailure(s.Reason, attempt, b)
			require.Equal(t, s.Retryable, f.Retryable)
			want := 0
			if s.Retryable {
				want = b.RetryAfter(attempt)
			}
			require.Equal(t, want, f.RetryAfter, "only with retryable")
		}
	}
	require.Equal(t, job.WorkPanicked, job.NewFailure("unheard-of", 1, b).Reason)
}
