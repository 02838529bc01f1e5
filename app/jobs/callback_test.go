package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// What is recorded of a job with a callback wakes the delivery workers,
// whoever recorded it.
func TestEventsOfJobsWithACallbackWakeTheWorkers(t *testing.T) {
	callback := func(r *apptest.Row) { r.Callback = "https://receiver.example" }
	for name, c := range map[string]struct {
		wakes int
		do    func(w *worldJobs, s *Service) error
	}{
		"submit": {1, func(_ *worldJobs, s *Service) error {
			_, err := s.Submit(context.Background(), newRequest(func(r *job.Request) { r.Callback = "https://receiver.example" }))
			return err
		}},
		"batch": {1, func(_ *worldJobs, s *Service) error {
			_, _, err := s.SubmitBatch(context.Background(), newBatchRequest(
				newRequest(), newRequest(func(r *job.Request) { r.Callback = "https://receiver.example" })))
			return err
		}},
		"cancel": {1, func(w *worldJobs, s *Service) error {
			_, err := s.Cancel(context.Background(), apptest.ClientA, w.Add(callback).JobID)
			return err
		}},
		"retry": {1, func(w *worldJobs, s *Service) error {
			_, err := s.Retry(context.Background(), apptest.ClientA, w.Add(apptest.FailedJob, callback).JobID)
			return err
		}},
		"execute": {3, func(w *worldJobs, _ *Service) error {
			w.start()
			return w.handle(w.Add(callback)) // assigned, running, succeeded
		}},
		"schedule": {1, func(w *worldJobs, _ *Service) error {
			task := w.AddDeferred(time.Second)
			w.Store.Change(task.JobID, callback)
			w.lead()
			apptest.Pass(1500 * time.Millisecond)
			return nil
		}},
		"without a callback": {0, func(w *worldJobs, s *Service) error {
			w.start()
			if _, err := s.Submit(context.Background(), newRequest()); err != nil {
				return err
			}
			return w.handle(w.Add())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldJobs(t)
				require.NoError(t, c.do(w, w.service(10)))
				woken := w.Queue.Woken()
				require.Len(t, woken, c.wakes)
				for _, client := range woken {
					require.Equal(t, apptest.ClientA, client)
				}
			})
		})
	}
}
