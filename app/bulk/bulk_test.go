package bulk

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// alike is a store whose jobs are those, and nothing else.
type alike struct {
	Store
	jobs []job.BulkAlike
}

func (a alike) CountBulk(context.Context, job.ID, job.BulkFilter, job.ID, int) (job.BulkLook, error) {
	return job.BulkLook{Alike: a.jobs}, nil
}

func (alike) BulkJobs(context.Context, []job.ID) ([]*job.Job, error) { return nil, nil }

// A dry run counts what would be changed, and says why not for the others, once for each reason, the most frequent first.
func TestDryRunSaysWhatItWouldChange(t *testing.T) {
	store := alike{jobs: []job.BulkAlike{
		{State: job.Queued, Attempt: 1, MaxAttempts: 4, Count: 1},
		{State: job.Failed, Attempt: 4, MaxAttempts: 4, Retryable: true, Count: 2},
		{State: job.Failed, Attempt: 1, MaxAttempts: 4, Count: 3},
		{State: job.Failed, Attempt: 2, MaxAttempts: 4, Count: 4},
		{State: job.Failed, Attempt: 1, MaxAttempts: 4, Retryable: true, Count: 5, InOpenBatch: true},
	}}
	s := New(store, store, nil, slog.New(slog.DiscardHandler))
	for _, test := range []struct {
		request job.BulkRequest
		changes int
		left    []int
		first   job.Code
	}{
		{job.BulkRequest{Action: job.BulkRetry}, 5, []int{7, 2, 1}, job.CodeConflict},
		{job.BulkRequest{Action: job.BulkRetry, Override: true}, 14, []int{1}, ""},
		{job.BulkRequest{Action: job.BulkCancel}, 1, []int{14}, ""},
		{job.BulkRequest{Action: job.BulkDelete}, 9, []int{5, 1}, job.ErrCountsInBatch.Code},
	} {
		c, err := s.Count(t.Context(), test.request)
		require.NoError(t, err)
		require.Equal(t, []int{15, test.changes}, []int{c.Count, c.Changes}, test.request.Action)
		var left []int
		for _, r := range c.Left {
			require.NotEmpty(t, r.Detail)
			left = append(left, r.Count)
		}
		require.Equal(t, test.left, left, test.request.Action)
		if test.first != "" {
			require.Equal(t, &test.first, c.Left[0].Code)
		}
	}
}
