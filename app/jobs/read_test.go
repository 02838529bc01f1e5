package jobs

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

func TestWhatAJobWaitsFor(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		waiting := func(task job.Task) job.WaitingReason {
			j, err := s.Job(context.Background(), apptest.ClientA, task.JobID)
			require.NoError(t, err)
			return j.Waiting
		}
		queued, scheduled, running := w.Add(), w.AddDeferred(time.Hour), w.Add(func(r *apptest.Row) { r.State = job.Running })
		backoff := w.Add(func(r *apptest.Row) { r.RunAt = time.Now().Add(time.Hour) })
		require.Equal(t, job.WaitingQueue, waiting(queued), "nobody has counted yet")
		w.Background(s.capacity.Run)
		require.Equal(t, job.WaitingNoWorkers, waiting(queued))
		require.Equal(t, job.WaitingScheduled, waiting(scheduled))
		require.Equal(t, job.WaitingBackoff, waiting(backoff))
		require.Empty(t, waiting(running))

		stop := w.start()
		apptest.Pass(capacityInterval)
		require.Equal(t, job.WaitingQueue, waiting(queued))
		w.Store.Hook("LiveWorkers", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		stop()
		apptest.Pass(2 * capacityInterval)
		require.Equal(t, job.WaitingQueue, waiting(queued), "as counted last")
		require.NotEmpty(t, w.Log.Lines(t, map[string]any{"msg": "cannot count workers"}))
		apptest.Pass(capacityInterval)
		require.Equal(t, job.WaitingNoWorkers, waiting(queued))
	})
}

func TestTheProgressOfAJob(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		progress := func(task job.Task) *job.Progress {
			j, err := s.Job(context.Background(), apptest.ClientA, task.JobID)
			require.NoError(t, err)
			return j.Progress
		}
		running, ended := w.Add(func(r *apptest.Row) { r.State, r.Attempt = job.Running, 2 }), w.Add(apptest.FailedJob)
		w.Queue.Publish(job.Notification{JobID: ended.JobID, Attempt: 1, Progress: apptest.Percent(90)})
		w.Queue.Publish(job.Notification{JobID: running.JobID, Attempt: 1, Progress: apptest.Percent(90)})
		require.Nil(t, progress(ended), "it runs no more")
		require.Nil(t, progress(running), "of an earlier attempt")
		w.Queue.Publish(job.Notification{JobID: running.JobID, Attempt: 2, Progress: apptest.Percent(10)})
		require.Equal(t, apptest.Percent(10), progress(running))
	})
}

func TestReadingWhatBelongsToAJob(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.Add(apptest.FailedJob)
		ctx := context.Background()
		origin, attempts, err := s.Attempts(ctx, apptest.ClientA, task.JobID)
		require.NoError(t, err)
		require.Equal(t, task.JobID, origin.JobID)
		require.Len(t, attempts, 1)
		result, err := s.Result(ctx, apptest.ClientA, task.JobID)
		require.NoError(t, err)
		require.NotEmpty(t, result.Body)
		page, err := s.List(ctx, apptest.ClientA, job.Query{})
		require.NoError(t, err)
		require.Len(t, page.Jobs, 1)
		log, err := w.reader.JobEvents(ctx, apptest.ClientA, task.JobID, 0, 10)
		require.NoError(t, err)
		require.True(t, log.Ended)
		end, err := w.reader.FeedEnd(ctx)
		require.NoError(t, err)
		feed, err := w.reader.ClientEvents(ctx, apptest.ClientA, end, 10)
		require.NoError(t, err)
		require.Empty(t, feed.Events)

		other := func() error { _, _, err := s.Attempts(ctx, apptest.ClientB, task.JobID); return err }
		for what, err := range map[string]error{
			"attempts": other(),
			"result":   second(s.Result(ctx, apptest.ClientB, task.JobID)),
			"events":   second(w.reader.JobEvents(ctx, apptest.ClientB, task.JobID, 0, 10)),
			"delete":   s.Delete(ctx, apptest.ClientB, task.JobID),
		} {
			require.Equal(t, job.CodeJobNotFound, job.CodeOf(err), what)
		}
		require.Equal(t, job.CodeConflict, job.CodeOf(s.Delete(ctx, apptest.ClientA, w.Add().JobID)))
		require.NoError(t, s.Delete(ctx, apptest.ClientA, task.JobID))
	})
}

func TestTheCursorKeyIsReadOnce(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.Store.Hook("CursorKey", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		_, err := s.CursorKey(context.Background())
		require.ErrorIs(t, err, apptest.ErrStorage)
		w.Store.Hook("CursorKey", apptest.Hook{Before: func(context.Context) error { time.Sleep(time.Second); return nil }})
		impatient, cancel := context.WithCancel(context.Background())
		first := make(chan error, 1)
		go func() {
			_, err := s.CursorKey(impatient)
			first <- err
		}()
		synctest.Wait()
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if key, err := s.CursorKey(context.Background()); err != nil || string(key) != "the key" {
					t.Errorf("got %q, %v", key, err)
				}
			})
		}
		synctest.Wait()
		cancel() // who asked first gives up, and takes nobody along
		require.ErrorIs(t, <-first, context.Canceled)
		all.Wait()
		key, err := s.CursorKey(context.Background())
		require.NoError(t, err)
		require.Equal(t, "the key", string(key))
		require.Equal(t, 2, w.Store.Count("CursorKey"))
	})
}
