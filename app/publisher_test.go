package app

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const (
	testStream = "outcomes"
	testMaxLen = 1000
)

// addOutcome stores an outcome that waits to be published.
func (w *worldMaint) addOutcome(failure *job.Failure) job.ID {
	now, id, state := time.Now(), newID(), job.Succeeded
	if failure != nil {
		state = job.Failed
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.outbox = append(w.store.outbox, &outboxRow{OutcomeMessage: job.OutcomeMessage{
		JobID: id, Attempt: 1, Origin: job.Origin{JobID: id, CreatedAt: now, Language: "en", CorrelationID: "<c>"},
		Ended: job.Attempt{Number: 1, State: state, FinishedAt: &now, Failure: failure},
	}})
	return id
}

func (w *worldMaint) unpublished() (n int) {
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	for _, r := range w.store.outbox {
		if r.published.IsZero() {
			n++
		}
	}
	return n
}

// appended gives how often each job is in the stream.
func (w *worldMaint) appended() map[string]int {
	w.queue.mu.Lock()
	defer w.queue.mu.Unlock()
	times := map[string]int{}
	for _, e := range w.queue.stream {
		times[e.Key]++
	}
	return times
}

func TestOutcomesArePublishedAsTheDocumentsOfTheAPI(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		good, bad := w.addOutcome(nil), w.addOutcome(job.NewFailure(job.TimedOut, 1, testBackoff))
		w.lead()
		pass(2 * publisherInterval)
		require.Len(t, w.queue.stream, 2)
		for i, want := range []struct {
			id          job.ID
			contentType string
			status      job.Status
		}{{good, "application/json", job.StatusCompleted}, {bad, "application/problem+json", job.StatusTimedOut}} {
			entry := w.queue.stream[i]
			require.Equal(t, []string{want.id.String(), want.contentType}, []string{entry.Key, entry.ContentType})
			var d job.Document
			require.NoError(t, json.Unmarshal(entry.Value, &d))
			require.Equal(t, want.id, d.JobID)
			require.Equal(t, want.status, d.JobStatus)
			require.Contains(t, string(entry.Value), `"correlationId":"<c>"`, "as it is, without the escapes of HTML")
			require.NotContains(t, string(entry.Value), "\n")
		}
		require.Contains(t, string(w.queue.stream[1].Value), `"type":"https://run.example/problems/`)
		require.Zero(t, w.unpublished())
		require.Equal(t, 2.0, w.metric(w.metrics.outcomesPublished))
		pass(time.Minute)
		require.Len(t, w.queue.stream, 2, "once, as long as nothing goes wrong")
	})
}

func TestOutcomesOfOneRoundAreManyPages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 3*publisherBatch + 1 {
			w.addOutcome(nil)
		}
		w.lead()
		pass(publisherInterval)
		require.Len(t, w.queue.stream, 3*publisherBatch+1)
		require.Zero(t, w.unpublished())
	})
}

func TestOutcomesArePublishedAtLeastOnce(t *testing.T) {
	for name, trouble := range map[string]func(*worldMaint){
		"the stream is away":             func(w *worldMaint) { w.queue.change(func() { w.queue.err = errQueue }) },
		"the stream's answer is lost":    func(w *worldMaint) { w.queue.change(func() { w.queue.err, w.queue.appendsLost = errQueue, true }) },
		"storage is away":                func(w *worldMaint) { w.store.hook("UnpublishedOutcomes", hook{before: fails(-1, errStorage)}) },
		"storage does not note it":       func(w *worldMaint) { w.store.hook("MarkPublished", hook{before: fails(-1, errStorage)}) },
		"storage's answer to it is lost": func(w *worldMaint) { w.store.hook("MarkPublished", hook{after: fails(-1, errStorage)}) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				id := w.addOutcome(nil)
				trouble(w)
				w.lead()
				pass(10 * publisherInterval)
				require.NotZero(t, w.metric(w.metrics.maintenanceErrors.WithLabelValues("outcomes")))

				w.queue.change(func() { w.queue.err = nil })
				w.store.hook("UnpublishedOutcomes", hook{})
				w.store.hook("MarkPublished", hook{})
				pass(2 * publisherInterval)
				require.NotZero(t, w.appended()[id.String()])
				require.Zero(t, w.unpublished())
			})
		})
	}
}

// Otherwise it would append the same ones five times a second.
func TestNothingIsRepeatedWhileStorageCannotNoteIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		id := w.addOutcome(nil)
		w.store.hook("MarkPublished", hook{before: fails(-1, errStorage)})
		w.lead()
		pass(time.Minute)
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
	})
}

func TestTheStreamIsRepairedWhenItsServerWasEmptied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		id := w.addOutcome(nil)
		w.lead()
		pass(time.Second)
		require.Len(t, w.queue.stream, 1)
		w.queue.flush()
		w.queue.change(func() { w.queue.stream = nil })
		w.store.hook("RepublishOutcomes", hook{before: fails(2, errStorage)})
		pass(2 * time.Second)
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
		require.Zero(t, w.unpublished())
	})
}

// The server takes with it what it was given last. It may be away for long.
func TestWhatWasPublishedBeforeTheServerWentAwayIsPublishedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.lead()
		old := w.addOutcome(nil)
		pass(publishedKept + removalInterval + time.Second)
		require.Empty(t, w.store.outbox, "it is kept for a while only")
		recent := w.addOutcome(nil)
		pass(time.Second)
		require.Equal(t, map[string]int{old.String(): 1, recent.String(): 1}, w.appended())

		w.queue.change(func() { w.queue.err = errQueue })
		pass(5 * time.Minute)
		w.queue.flush()
		w.queue.change(func() { w.queue.err, w.queue.runID, w.queue.stream = nil, "another", nil })
		pass(5 * time.Second)
		require.Equal(t, map[string]int{recent.String(): 1}, w.appended())
	})
}

// The leader before may have died between raising the epoch and the repair.
func TestANewLeaderRepairsTheStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		id := w.addOutcome(nil)
		w.store.outbox[0].published = time.Now()
		w.lead()
		pass(time.Second)
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
	})
}

// What the stream had when it was emptied is not noted as published after.
func TestWhatWasAppendedBeforeTheRepairIsAppendedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		p := NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testMaxLen}, w.store, w.queue, w.metrics, w.logger)
		id := w.addOutcome(nil)
		w.store.hook("MarkPublished", hook{before: fails(1, errStorage)})
		require.Error(t, p.round(context.Background(), always))
		w.queue.stream = nil
		require.NoError(t, w.store.RaiseEpoch(context.Background(), w.store.epoch, "another"))
		require.NoError(t, p.round(context.Background(), always))
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
	})
}

func TestPublishingEndsWithLeadership(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 5 * publisherBatch {
			w.addOutcome(nil)
		}
		p := NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testMaxLen}, w.store, w.queue, w.metrics, w.logger)
		rounds := 0
		require.NoError(t, p.round(context.Background(), func() bool { rounds++; return rounds <= 2 }))
		require.Len(t, w.queue.stream, 2*publisherBatch)
	})
}

func TestWithoutAStreamNothingIsPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.addOutcome(nil)
		m := NewMaintenance(MaintenanceDeps{
			Store: w.store, Claims: w.store, Census: w.store, Queue: w.queue, Relay: NewRelay(w.store, w.queue, testWindow, w.metrics, w.logger),
			Deliveries: NewDeliveryRelay(w.store, w.queue, w.metrics, w.logger), Settler: w.settler, Metrics: w.metrics, Log: w.logger,
		})
		w.background(m.Run)
		pass(time.Minute)
		require.Zero(t, w.store.count("UnpublishedOutcomes"))
		require.Empty(t, w.queue.stream)
	})
}
