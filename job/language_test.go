package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

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
