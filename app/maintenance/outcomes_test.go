package maintenance

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
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
	times := map[string]int{}
	w.Queue.Change(func() {
		for _, e := range w.Queue.stream {
			times[e.Key]++
		}
	})
	return times
}

func TestOutcomesArePublishedAsTheDocumentsOfTheAPI(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
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

// publisher is one whose rounds a test takes by itself.
func (w *worldMaint) publisher() *Publisher {
	return NewPublisher(PublisherConfig{Stream: testStream}, w.Store, w.Queue, w.Metrics, w.Logger)
}

// A round has as many pages as it takes, and ends with the leadership.
func TestOutcomesOfOneRoundAreManyPages(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		for range 3*publisherBatch + 1 {
			w.addOutcome(nil)
		}
		rounds, p := 0, w.publisher()
		require.NoError(t, p.round(context.Background(), func() bool { rounds++; return rounds <= 2 }))
		require.Equal(t, 2*publisherBatch, len(w.Queue.stream))
		require.NoError(t, p.round(context.Background(), always))
		require.Equal(t, 3*publisherBatch+1, len(w.Queue.stream))
		require.Zero(t, w.unpublished())
	})
}

func TestOutcomesArePublishedAtLeastOnce(t *testing.T) {
	storage := func(operation string, h apptest.Hook) func(*worldMaint) {
		return func(w *worldMaint) { w.Store.Hook(operation, h) }
	}
	away, lost := apptest.Hook{Before: apptest.Fails(-1, apptest.ErrStorage)}, apptest.Hook{After: apptest.Fails(-1, apptest.ErrStorage)}
	for name, c := range map[string]struct {
		trouble func(*worldMaint)
		during  int // appended while it lasts, -1 for as often as it is tried
	}{
		"the stream is away": {func(w *worldMaint) { w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue }) }, 0},
		"the stream's answer is lost": {func(w *worldMaint) {
			w.Queue.Change(func() { w.Queue.Err, w.Queue.appendsLost = apptest.ErrQueue, true })
		}, -1},
		"storage is away":                {storage("UnpublishedOutcomes", away), 0},
		"storage does not note it":       {storage("MarkPublished", away), 1}, // and not five times a second
		"storage's answer to it is lost": {storage("MarkPublished", lost), 1},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldMaint(t)
			id := w.addOutcome(nil)
			c.trouble(w)
			w.lead()
			apptest.Pass(time.Minute)
			require.NotZero(t, w.Metric(w.Metrics.MaintenanceErrors.WithLabelValues("outcomes")))
			if c.during >= 0 {
				require.Equal(t, c.during, w.appended()[id.String()])
			}
			w.Queue.Change(func() { w.Queue.Err = nil })
			w.Store.Hook("UnpublishedOutcomes", apptest.Hook{})
			w.Store.Hook("MarkPublished", apptest.Hook{})
			apptest.Pass(2 * publisherInterval)
			require.NotZero(t, w.appended()[id.String()])
			require.Zero(t, w.unpublished())
		})
	}
}

// The server takes with it what it was given last. It may be away for long.
func TestTheStreamIsRepairedWhenItsServerWasEmptied(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		w.lead()
		old := w.addOutcome(nil)
		apptest.Pass(publishedKept + removalInterval + time.Second)
		require.Empty(t, w.Store.outbox, "it is kept for a while only")
		recent := w.addOutcome(nil)
		apptest.Pass(time.Second)
		require.Equal(t, map[string]int{old.String(): 1, recent.String(): 1}, w.appended())

		w.Store.Hook("RepublishOutcomes", apptest.Hook{Before: apptest.Fails(2, apptest.ErrStorage)})
		w.Queue.Change(func() { w.Queue.Err = apptest.ErrQueue })
		apptest.Pass(5 * time.Minute)
		w.Queue.flush()
		w.Queue.Change(func() { w.Queue.Err = nil })
		apptest.Pass(5 * time.Second)
		require.Equal(t, map[string]int{recent.String(): 1}, w.appended())
		require.Zero(t, w.unpublished())
	})
}

// Another leader may have died before it repaired the stream. And what the stream had when it was emptied is not noted as published
// after, though something was appended to the new stream before anybody looked.
func TestWhoLeadsNextRepairsTheStream(t *testing.T) {
	bubble(t, func(t *testing.T, w *worldMaint) {
		id := w.addOutcome(nil)
		w.Store.outbox[0].Published = time.Now()
		p := w.publisher()
		w.Store.Hook("MarkPublished", apptest.Hook{Before: apptest.Fails(1, apptest.ErrStorage)})
		require.Error(t, p.round(context.Background(), always))
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())
		w.Queue.flush()
		require.NoError(t, p.round(context.Background(), always))
		require.Equal(t, map[string]int{id.String(): 1}, w.appended())

		next := w.addOutcome(nil)
		w.Store.Hook("UnpublishedOutcomes", apptest.Hook{After: func(context.Context) error { w.Queue.flush(); return nil }})
		require.NoError(t, p.round(context.Background(), always))
		w.Store.Hook("UnpublishedOutcomes", apptest.Hook{})
		require.NoError(t, p.round(context.Background(), always))
		require.NotZero(t, w.appended()[id.String()])
		require.NotZero(t, w.appended()[next.String()])
	})
}
