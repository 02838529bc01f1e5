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

func TestEveryReasonIsTranslated(t *testing.T) {
	t.Parallel()
	require.Equal(t, "en", job.Languages[0], "the default of draft F.5")
	for _, r := range job.Reasons {
		f := job.NewFailure(r.Reason, 1, job.Backoff{})
		titles, details := map[string]bool{}, map[string]bool{}
		for _, language := range job.Languages {
			titles[r.Reason.Title(language)] = true
			details[f.In(language)] = true
		}
		require.Len(t, titles, len(job.Languages), "%s: one title a language", r.Reason)
		require.Len(t, details, len(job.Languages), "%s: one detail a language", r.Reason)
		require.Equal(t, r.Title, r.Reason.Title("en"))
		require.Equal(t, r.Title, r.Reason.Title("tlh"))
		require.Equal(t, r.Detail, f.In(""))
	}
}

func TestEnglishDetailIsTheStoredOne(t *testing.T) {
	t.Parallel()
	f := &job.Failure{Reason: job.TimedOut, Detail: "As it was put then."}
	require.Equal(t, "As it was put then.", f.In("en"))
	unknown := &job.Failure{Reason: "of-a-later-version", Detail: "Stored."}
	require.Equal(t, "Stored.", unknown.In("de"))
}
