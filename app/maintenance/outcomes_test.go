package maintenance

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/job"
)

// addOutcome stores an outcome that waits to be published.
func (w *worldMaint) addOutcome(failure *job.Failure) job.ID {
	now, id, state := time.Now(), app.NewID(), job.Succeeded
	if failure != nil {
		state = job.Failed
	}
	w.Store.Mu.Lock()
	defer w.Store.Mu.Unlock()
	w.Store.outbox = append(w.Store.outbox, &outboxRow{OutcomeMessage: job.OutcomeMessage{
		JobID: id, Attempt: 1, Origin: job.Origin{JobID: id, CreatedAt: now, Language: "de", CorrelationID: "<c>",
			Scenario: job.Scenario{WorkKind: job.SuccessFast, DurationMS: 1000, ExpectedOutcome: "SUCCEEDED"}},
		Ended: job.Attempt{Number: 1, State: state, FinishedAt: &now, Failure: failure},
	}})
	return id
}

func (w *worldMaint) unpublished() (n int) {
	w.Store.Mu.Lock()
	defer w.Store.Mu.Unlock()
	for _, r := range w.Store.outbox {
		if r.Published.IsZero() {
			n++
		}
	}
	return n
}

// appended gives how often each job is in the stream.
func (w *worldMaint) appended() map[string]int {
	w.Queue.Mu.Lock()
	defer w.Queue.Mu.Unlock()
	times := map[string]int{}
	for _, e := range w.Queue.stream {
		times[e.Key]++
	}
	return times
}

func TestOutcomesArePublishedAsTheDocumentsOfTheAPI(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		good, bad := w.addOutcome(nil), w.addOutcome(job.NewFailure(job.TimedOut, 1, apptest.Backoff))
		w.lead()
		apptest.Pass(2 * publisherInterval)
		require.Len(t, w.Queue.stream, 2)
		for i, want := range []struct {
			id          job.ID
			contentType string
			language    string
			status      job.Status
		}{{good, "application/json", "", job.StatusCompleted}, {bad, "application/problem+json", "en", job.StatusTimedOut}} {
			entry := w.Queue.stream[i]
			require.Equal(t, []string{want.id.String(), want.contentType, want.language}, []string{entry.Key, entry.ContentType, entry.Language})
			var d job.Document
			require.NoError(t, json.Unmarshal(entry.Value, &d))
			require.Equal(t, want.id, d.JobID)
			require.Equal(t, want.status, d.JobStatus)
			require.Equal(t, &job.Scenario{WorkKind: job.SuccessFast, DurationMS: 1000, ExpectedOutcome: "SUCCEEDED"}, d.Scenario)
			require.Equal(t, want.language, d.Language)
			require.Contains(t, string(entry.Value), `"correlationId":"<c>"`, "as it is, without the escapes of HTML")
			require.NotContains(t, string(entry.Value), "\n")
		}
		require.Contains(t, string(w.Queue.stream[1].Value), `"type":"https://run.example/problems/`)
		require.Contains(t, string(w.Queue.stream[1].Value), "The job ran longer than the execution limit.", "in English")
		require.Zero(t, w.unpublished())
		require.Equal(t, 2.0, w.Metric(w.Metrics.OutcomesPublished))
		apptest.Pass(time.Minute)
		require.Len(t, w.Queue.stream, 2, "once, as long as nothing goes wrong")
	})
}

func TestOutcomesOfOneRoundAreManyPages(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 3*publisherBatch + 1 {
			w.addOutcome(nil)
		}
		w.lead()
		apptest.Pass(publisherInterval)
		require.Len(t, w.Queue.stream, 3*publisherBatch+1)
		require.Zero(t, w.unpublished())
	})
}

func TestOutcomesArePublishedAtLeastOnce(t *testing.T) {
	for name, trouble := range map[string]func(*worldMaint){
		"the stream is away": func(w *worldMaint) { w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue }) },
		"the stream's answer is lost": func(w *worldMaint) {
			w.Queue.Change(func() { w.Queue.Err, w.Queue.appendsLost = apptest.ErrQueue, true })
		},
		"storage is away": func(w *worldMaint) {
			w.Store.Hook("UnpublishedOutcomes", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		},
		"storage does not note it": func(w *worldMaint) {
			w.Store.Hook("MarkPublished", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		},
		"storage's answer to it is lost": func(w *worldMaint) {
			w.Store.Hook("MarkPublished", apptest.Hook{After: apptest.Fails(-1, apptest.ErrStorage)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			apptest.Bubble(t, func(t *testing.T) {
				w := newWorldMaint(t)
				id := w.addOutcome(nil)
				trouble(w)
				w.lead()
				apptest.Pass(10 * publisherInterval)
				require.NotZero(t, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("outcomes")))

				w.Queue.Change(func() { w.Queue.Err = nil })
				w.Store.Hook("UnpublishedOutcomes", apptest.Hook{})
				w.Store.Hook("MarkPublished", apptest.Hook{})
				apptest.Pass(2 * publisherInterval)
				require.NotZero(t, w.appended()[id.String()])
				require.Zero(t, w.unpublished())
			})
		})
	}
}

// Otherwise it would append the same ones five times a second.
func TestNothingIsRepeatedWhileStorageCannotNoteIt(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		id := w.addOutcome(nil)
		w.Store.Hook("MarkPublished", apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)})
		w.lead()
		apptest.Pass(time.Minute)
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
	})
}

func TestTheStreamIsRepairedWhenItsServerWasEmptied(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		id := w.addOutcome(nil)
		w.lead()
		apptest.Pass(time.Second)
		require.Len(t, w.Queue.stream, 1)
		w.Queue.Flush()
		w.Queue.Change(func() { w.Queue.stream = nil })
		w.Store.Hook("RepublishOutcomes", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		apptest.Pass(2 * time.Second)
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
		require.Zero(t, w.unpublished())
	})
}

// The server takes with it what it was given last. It may be away for long.
func TestWhatWasPublishedBeforeTheServerWentAwayIsPublishedAgain(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.lead()
		old := w.addOutcome(nil)
		apptest.Pass(publishedKept + removalInterval + time.Second)
		require.Empty(t, w.Store.outbox, "it is kept for a while only")
		recent := w.addOutcome(nil)
		apptest.Pass(time.Second)
		require.Equal(t, map[string]int{old.String(): 1, recent.String(): 1}, w.appended())

		w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue })
		apptest.Pass(5 * time.Minute)
		w.Queue.Flush()
		w.Queue.Change(func() { w.Queue.Err, w.Queue.RunID, w.Queue.stream = nil, "another", nil })
		apptest.Pass(5 * time.Second)
		require.Equal(t, map[string]int{recent.String(): 1}, w.appended())
	})
}

// The leader before may have died between raising the epoch and the repair.
func TestANewLeaderRepairsTheStream(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		id := w.addOutcome(nil)
		w.Store.outbox[0].Published = time.Now()
		w.lead()
		apptest.Pass(time.Second)
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
	})
}

// What the stream had when it was emptied is not noted as published after.
func TestWhatWasAppendedBeforeTheRepairIsAppendedAgain(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		p := NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testStreamLen}, w.Store, w.Queue, w.Metrics, w.Logger)
		id := w.addOutcome(nil)
		w.Store.Hook("MarkPublished", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.Error(t, p.round(context.Background(), always))
		w.Queue.stream = nil
		require.NoError(t, w.Store.RaiseEpoch(context.Background(), w.Store.DispatchEpoch, "another"))
		require.NoError(t, p.round(context.Background(), always))
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
	})
}

func TestPublishingEndsWithLeadership(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		for range 5 * publisherBatch {
			w.addOutcome(nil)
		}
		p := NewPublisher(PublisherConfig{Stream: testStream, MaxLen: testStreamLen}, w.Store, w.Queue, w.Metrics, w.Logger)
		rounds := 0
		require.NoError(t, p.round(context.Background(), func() bool { rounds++; return rounds <= 2 }))
		require.Len(t, w.Queue.stream, 2*publisherBatch)
	})
}

func TestWithoutAStreamNothingIsPublished(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldMaint(t)
		w.addOutcome(nil)
		m := New(Deps{
			Store: w.Store, Claims: w.Store, Backlog: w.Store, Queue: w.Queue, Relay: NewRelay(w.Store, w.Queue, testWindow, w.Metrics, w.Logger),
			Deliveries: delivery.NewRelay(w.Store, w.Queue, w.Metrics, w.Logger), Completer: w.completer, Metrics: w.Metrics, Log: w.Logger,
		})
		w.Background(m.Run)
		apptest.Pass(time.Minute)
		require.Zero(t, w.Store.Count("UnpublishedOutcomes"))
		require.Empty(t, w.Queue.stream)
	})
}
