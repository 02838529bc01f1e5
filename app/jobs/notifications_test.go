package jobs

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func event(t job.Task) job.Notification {
	return job.Notification{ClientID: apptest.ClientA, JobID: t.JobID}
}

func end(t job.Task) job.Notification {
	return job.Notification{ClientID: apptest.ClientA, JobID: t.JobID, Attempt: t.Attempt, Ended: true}
}

func TestSubmissionsArePublished(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		r := newRequest(withKey("k"))
		receipt, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, []job.Notification{event(job.Task{JobID: receipt.JobID})}, w.Queue.Notifications())
		_, err = s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.Empty(t, w.Queue.Notifications(), "a replay")
		w.Store.Hook("InsertJob", apptest.Hook{After: apptest.Fails(1, apptest.ErrStorage)})
		_, err = s.Submit(context.Background(), newRequest())
		require.Error(t, err)
		require.Empty(t, w.Queue.Notifications(), "a refusal")
	})
}

func TestCancelsAndRetriesArePublished(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		running, failed := w.Add(func(r *apptest.Row) { r.State = job.Running }), w.Add(apptest.FailedJob)
		for _, want := range [][]job.Notification{{end(running)}, nil} {
			_, err := s.Cancel(context.Background(), apptest.ClientA, running.JobID)
			require.NoError(t, err)
			require.Equal(t, want, w.Queue.Notifications())
		}
		for _, want := range [][]job.Notification{{event(failed)}, nil} {
			_, err := s.Retry(context.Background(), apptest.ClientA, failed.JobID)
			require.NoError(t, err)
			require.Equal(t, want, w.Queue.Notifications())
		}
	})
}
