package jobs

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestCallbacksToForbiddenTargetsAreRefused(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		s.targets = noLocals{}
		local := func(r *job.Request) { r.Callback = "http://localhost/" }
		_, err := s.Submit(context.Background(), newRequest(local, func(r *job.Request) {
			r.Type, r.Emit = job.Execute, &job.Emission{Name: "x"}
		}))
		var invalid *job.Error
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, job.CodeValidationFailed, invalid.Code)
		require.ElementsMatch(t, []string{"/callback", "/event"}, []string{invalid.Violations[0].Pointer, invalid.Violations[1].Pointer})
		w.nothingDone()

		b, _, err := s.SubmitBatch(context.Background(), newBatchRequest(newRequest(), newRequest(local)))
		require.NoError(t, err)
		require.Nil(t, b.Items[0].Refusal)
		require.Equal(t, []job.Violation{{Pointer: "/jobs/1/callback", Detail: "The host is a local one."}}, b.Items[1].Refusal.Violations)

		_, err = s.Submit(context.Background(), newRequest(func(r *job.Request) { r.Callback = "https://receiver.example/" }))
		require.NoError(t, err)
		s.targets = nil
		_, err = s.Submit(context.Background(), newRequest(local))
		require.NoError(t, err, "nobody looks")
	})
}

// noLocals is a Targets that refuses what has the word local in it.
type noLocals struct{}

func (noLocals) Check(url string) string {
	if strings.Contains(url, "local") {
		return "The host is a local one."
	}
	return ""
}
