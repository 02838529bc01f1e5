package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Whatever is recorded of a job with a callback is hinted by whoever recorded
// it.
func TestEventsOfJobsWithACallbackAreHinted(t *testing.T) {
	callback := func(r *row) { r.Callback = "https://receiver.example" }
	for name, c := range map[string]struct {
		hints int
		do    func(w *world, s *Service) error
	}{
		"submit": {1, func(_ *world, s *Service) error {
			_, err := s.Submit(context.Background(), request(func(r *job.Request) { r.Callback = "https://receiver.example" }))
			return err
		}},
		"batch": {1, func(_ *world, s *Service) error {
			_, _, err := s.SubmitBatch(context.Background(), batchRequest(
				request(), request(func(r *job.Request) { r.Callback = "https://receiver.example" })))
			return err
		}},
		"cancel": {1, func(w *world, s *Service) error {
			_, err := s.Cancel(context.Background(), clientA, w.add(callback).JobID)
			return err
		}},
		"retry": {1, func(w *world, s *Service) error {
			_, err := s.Retry(context.Background(), clientA, w.add(failedJob, callback).JobID)
			return err
		}},
		"execute": {2, func(w *world, _ *Service) error {
			w.start()
			return w.handle(w.add(callback)) // assigned and running, succeeded
		}},
		"schedule": {1, func(w *world, _ *Service) error {
			task := w.addDeferred(time.Second)
			w.store.change(task.JobID, callback)
			w.lead()
			pass(1500 * time.Millisecond)
			return nil
		}},
		"without a callback": {0, func(w *world, s *Service) error {
			w.start()
			if _, err := s.Submit(context.Background(), request()); err != nil {
				return err
			}
			return w.handle(w.add())
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				require.NoError(t, c.do(w, w.service(10)))
				hints := w.queue.hints()
				require.Len(t, hints, c.hints)
				for _, client := range hints {
					require.Equal(t, clientA, client)
				}
			})
		})
	}
}
