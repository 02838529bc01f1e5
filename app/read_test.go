package app

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestWhatAJobWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		waiting := func(task job.Task) job.WaitingReason {
			j, err := s.Job(context.Background(), clientA, task.JobID)
			require.NoError(t, err)
			return j.Waiting
		}
		queued, scheduled, running := w.add(), w.addDeferred(time.Hour), w.add(func(r *row) { r.State = job.Running })
		backoff := w.add(func(r *row) { r.RunAt = time.Now().Add(time.Hour) })
		require.Equal(t, job.WaitingQueue, waiting(queued), "nobody has counted yet")
		w.background(s.capacity.Run)
		require.Equal(t, job.WaitingNoWorkers, waiting(queued))
		require.Equal(t, job.WaitingScheduled, waiting(scheduled))
		require.Equal(t, job.WaitingBackoff, waiting(backoff))
		require.Empty(t, waiting(running))

		stop := w.start()
		pass(capacityInterval)
		require.Equal(t, job.WaitingQueue, waiting(queued))
		w.store.hook("LiveWorkers", hook{before: fails(2, errStorage)})
		stop()
		pass(2 * capacityInterval)
		require.Equal(t, job.WaitingQueue, waiting(queued), "as counted last")
		require.NotEmpty(t, w.log.lines(t, map[string]any{"msg": "cannot count workers"}))
		pass(capacityInterval)
		require.Equal(t, job.WaitingNoWorkers, waiting(queued))
	})
}

func TestTheProgressOfAJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		progress := func(task job.Task) *job.Progress {
			j, err := s.Job(context.Background(), clientA, task.JobID)
			require.NoError(t, err)
			return j.Progress
		}
		running, ended := w.add(func(r *row) { r.State, r.Attempt = job.Running, 2 }), w.add(failedJob)
		w.queue.Publish(job.Notification{JobID: ended.JobID, Attempt: 1, Progress: percent(90)})
		w.queue.Publish(job.Notification{JobID: running.JobID, Attempt: 1, Progress: percent(90)})
		require.Nil(t, progress(ended), "it runs no more")
		require.Nil(t, progress(running), "of an earlier attempt")
		w.queue.Publish(job.Notification{JobID: running.JobID, Attempt: 2, Progress: percent(10)})
		require.Equal(t, percent(10), progress(running))
	})
}

func TestReadingWhatBelongsToAJob(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		task := w.add(failedJob)
		ctx := context.Background()
		origin, attempts, err := s.Attempts(ctx, clientA, task.JobID)
		require.NoError(t, err)
		require.Equal(t, task.JobID, origin.JobID)
		require.Len(t, attempts, 1)
		result, err := s.Result(ctx, clientA, task.JobID)
		require.NoError(t, err)
		require.NotEmpty(t, result.Body)
		page, err := s.List(ctx, clientA, job.Query{})
		require.NoError(t, err)
		require.Len(t, page.Jobs, 1)
		log, err := w.reader.JobEvents(ctx, clientA, task.JobID, 0, 10)
		require.NoError(t, err)
		require.True(t, log.Ended)
		end, err := w.reader.FeedEnd(ctx)
		require.NoError(t, err)
		feed, err := w.reader.ClientEvents(ctx, clientA, end, 10)
		require.NoError(t, err)
		require.Empty(t, feed.Events)

		other := func() error { _, _, err := s.Attempts(ctx, clientB, task.JobID); return err }
		for what, err := range map[string]error{
			"attempts": other(),
			"result":   second(s.Result(ctx, clientB, task.JobID)),
			"events":   second(w.reader.JobEvents(ctx, clientB, task.JobID, 0, 10)),
			"delete":   s.Delete(ctx, clientB, task.JobID),
		} {
			require.Equal(t, job.CodeJobNotFound, job.CodeOf(err), what)
		}
		require.Equal(t, job.CodeConflict, job.CodeOf(s.Delete(ctx, clientA, w.add().JobID)))
		require.NoError(t, s.Delete(ctx, clientA, task.JobID))
	})
}

func TestTheCursorKeyIsReadOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(10)
		w.store.hook("CursorKey", hook{before: fails(1, errStorage)})
		_, err := s.CursorKey(context.Background())
		require.ErrorIs(t, err, errStorage)
		w.store.hook("CursorKey", hook{before: func(context.Context) error { time.Sleep(time.Second); return nil }})
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
		require.Equal(t, 2, w.store.count("CursorKey"))
	})
}
