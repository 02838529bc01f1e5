package app

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// subscribe stores a webhook as another process would.
func (w *world) subscribe(client job.ID) *webhookRow {
	r := &webhookRow{Webhook: job.Webhook{ID: newID(), ClientID: client}}
	w.store.meddle(func() { w.store.hooked[r.ID] = r })
	return r
}

func TestSubscribersAreKnownWithinASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.subscribe(clientA)
		s := NewSubscribers(w.store, w.logger)
		w.background(s.Run)
		require.True(t, s.Has(clientA), "at once at the start")
		require.False(t, s.Has(clientB))
		w.subscribe(clientB)
		pass(subscribersInterval)
		require.True(t, s.Has(clientB))

		w.store.hook("Subscribers", hook{before: fails(-1, errStorage)})
		w.store.meddle(func() { first.Disabled = &job.Disabled{} })
		pass(time.Minute)
		require.True(t, s.Has(clientA), "as it was")
		require.Len(t, w.log.lines(t, map[string]any{"level": "WARN"}), 1, "not with each try")
		w.store.hook("Subscribers", hook{})
		pass(subscribersInterval)
		require.False(t, s.Has(clientA))
		require.True(t, s.Has(clientB))
	})
}

// A reading that began before a registration has not seen it.
func TestASubscriberThatIsAddedDuringAReadingStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := NewSubscribers(w.store, w.logger)
		answered := make(chan struct{})
		w.store.hook("Subscribers", hook{after: func(context.Context) error { <-answered; return nil }})
		w.background(s.Run)
		s.Add(clientA)
		require.True(t, s.Has(clientA))
		close(answered)
		synctest.Wait()
		require.True(t, s.Has(clientA))
		pass(subscribersInterval)
		require.False(t, s.Has(clientA), "the next reading knows better")
	})
}

func TestNewsOfSubscribersIsHintedToTheCouriers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := NewSubscribers(w.store, w.logger)
		n := NewNotifier(w.queue, s)
		s.Add(clientA)
		a, b := job.Notification{ClientID: clientA, JobID: newID()}, job.Notification{ClientID: clientB, JobID: newID()}
		n.Publish(a)
		n.Publish(b)
		require.Equal(t, []job.Notification{a, b}, w.queue.news())
		require.Equal(t, []job.ID{clientA}, w.queue.hints())
		a.Progress = &job.Progress{Percentage: 1}
		n.Publish(a)
		require.Empty(t, w.queue.hints(), "progress is delivered to nobody")
	})
}

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

func TestCallbacksToForbiddenTargetsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.service(10)
		s.targets = noLocals
		local := func(r *job.Request) { r.Callback = "http://localhost/" }
		_, err := s.Submit(context.Background(), request(local, func(r *job.Request) { r.Type, r.Emit = job.Execute, &job.Emission{Name: "x"} }))
		var invalid *job.Error
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, job.CodeValidationFailed, invalid.Code)
		require.ElementsMatch(t, []string{"/callback", "/event"}, []string{invalid.Violations[0].Pointer, invalid.Violations[1].Pointer})
		w.nothingDone()

		b, _, err := s.SubmitBatch(context.Background(), batchRequest(request(), request(local)))
		require.NoError(t, err)
		require.Nil(t, b.Items[0].Refusal)
		require.Equal(t, []job.Violation{{Pointer: "/jobs/1/callback", Detail: "The host is a local one."}}, b.Items[1].Refusal.Violations)

		_, err = s.Submit(context.Background(), request(func(r *job.Request) { r.Callback = "https://receiver.example/" }))
		require.NoError(t, err)
		s.targets = nil
		_, err = s.Submit(context.Background(), request(local))
		require.NoError(t, err, "nobody looks")
	})
}
