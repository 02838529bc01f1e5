package bulk

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestDryRunReportsChanges(t *testing.T) {
	t.Parallel()
	jobs := []job.BulkAlike{
		{State: job.Queued, Attempt: 1, MaxAttempts: 4, Count: 1},
		{State: job.Failed, Attempt: 4, MaxAttempts: 4, Retryable: true, Count: 2},
		{State: job.Failed, Attempt: 1, MaxAttempts: 4, Count: 3},
		{State: job.Failed, Attempt: 2, MaxAttempts: 4, Count: 4},
		{State: job.Failed, Attempt: 1, MaxAttempts: 4, Retryable: true, Count: 5, InOpenBatch: true},
	}
	for _, test := range []struct {
		operation job.Bulk
		changes   int
		left      []int
		first     job.Code
	}{
		{job.Bulk{Action: job.BulkRetry}, 5, []int{7, 2, 1}, job.CodeConflict},
		{job.Bulk{Action: job.BulkRetry, Override: true}, 14, []int{1}, ""},
		{job.Bulk{Action: job.BulkCancel}, 1, []int{14}, ""},
		{job.Bulk{Action: job.BulkDelete}, 9, []int{5, 1}, job.ErrCountsInBatch.Code},
	} {
		var c job.BulkCount
		tally(&c, &test.operation, jobs)
		require.Equal(t, []int{15, test.changes}, []int{c.Count, c.Changes}, test.operation.Action)
		var left []int
		for _, r := range mostFrequentFirst(c.Left) {
			require.NotEmpty(t, r.Detail)
			left = append(left, r.Count)
		}
		require.Equal(t, test.left, left, test.operation.Action)
		if test.first != "" {
			require.Equal(t, &test.first, c.Left[0].Code)
		}
	}
}
