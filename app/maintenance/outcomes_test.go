package maintenance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (w *world) outcomes(n int) {
	w.insert("jobs", n, repotest.Columns{"state": "'SUCCEEDED'", "outcome": "'SUCCESS'", "started_at": "now()", "finished_at": "now()"})
	w.exec(`INSERT INTO outcome_outbox (job_id, attempt, finished_at) SELECT job_id, 1, finished_at FROM jobs
		WHERE NOT EXISTS (SELECT FROM reports WHERE reports.job_id = jobs.job_id)`)
	w.exec(`INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq)
		SELECT job_id, 1, 'SUCCESS', started_at, finished_at, 0, 1 FROM jobs ON CONFLICT DO NOTHING`)
}

func (w *world) unpublished() int { return w.count("outcome_outbox WHERE published_at IS NULL") }

func (w *world) appended() map[string]int {
	times := map[string]int{}
	for _, e := range w.queue.stream {
		times[e.Key]++
	}
	return times
}

func TestRoundPublishesManyPages(t *testing.T) {
	w := newWorld(t)
	w.outcomes(3*publisherBatch + 1)
	require.NoError(t, w.roundWhile("outcomes", times(2)))
	require.Len(t, w.queue.stream, 2*publisherBatch)
	require.NoError(t, w.round("outcomes"))
	require.Len(t, w.queue.stream, 3*publisherBatch+1)
	require.Zero(t, w.unpublished())
	require.EqualValues(t, 3*publisherBatch+1, w.Metric(w.Metrics.OutcomesPublished))
}

func TestOutcomesArePublishedAtLeastOnce(t *testing.T) {
	for name, c := range map[string]struct {
		trouble func(*world) (end func())
		during  int // number of entries after three failed rounds
		after   int
	}{
		"stream fails": {func(w *world) func() {
			w.queue.fail(apptest.ErrQueue)
			return func() { w.queue.fail(nil) }
		}, 0, 1},
		"responses of the stream are lost": {func(w *world) func() {
			w.queue.appendsLost = true
			return func() { w.queue.appendsLost = false }
		}, 3, 4},
		"storage cannot mark the outcome": {func(w *world) func() {
			return repotest.Refuse(w.T, w.url, "UPDATE ON outcome_outbox")
		}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			require.NoError(t, w.round("outcomes")) // reads the stream's last entry
			end := c.trouble(w)
			w.outcomes(1)
			for range 3 {
				require.Error(t, w.round("outcomes"))
			}
			require.Len(t, w.queue.stream, c.during)
			end()
			require.NoError(t, w.round("outcomes"))
			require.Len(t, w.queue.stream, c.after)
			require.Zero(t, w.unpublished())
		})
	}
}

func TestStreamIsRepairedAfterDataLoss(t *testing.T) {
	w := newWorld(t)
	p := w.m.newPublisher()
	w.outcomes(1)
	require.NoError(t, p.round(t.Context(), always))
	require.NoError(t, p.round(t.Context(), always))
	require.Equal(t, 1, w.count("outcome_outbox"))
	w.exec(`UPDATE outcome_outbox SET published_at = now() - interval '2 min'`)
	p.removed = time.Time{}
	require.NoError(t, p.round(t.Context(), always))
	require.Zero(t, w.count("outcome_outbox"), "published outcomes are removed")
	w.outcomes(1)
	require.NoError(t, p.round(t.Context(), always))
	require.Len(t, w.queue.stream, 2)

	w.queue.stream = nil
	w.exec(`UPDATE outcome_outbox SET published_at = now() - interval '2 min'`)
	p.removed = time.Time{}
	accept := repotest.Refuse(t, w.url, "UPDATE ON outcome_outbox")
	require.Error(t, p.round(t.Context(), always))
	accept()
	require.NoError(t, p.round(t.Context(), always))
	require.Len(t, w.queue.stream, 1, "outcomes are kept until the stream is repaired")
	require.Zero(t, w.unpublished())
}

func TestNextLeaderRepairsStream(t *testing.T) {
	w := newWorld(t)
	w.outcomes(1)
	w.exec(`UPDATE outcome_outbox SET published_at = now()`)
	p := w.m.newPublisher()
	accept := repotest.Refuse(t, w.url, "UPDATE ON outcome_outbox FOR EACH ROW WHEN (NEW.published_at IS NOT NULL)")
	require.Error(t, p.round(t.Context(), always))
	require.Len(t, w.queue.stream, 1)
	w.queue.stream = nil
	accept()
	require.NoError(t, p.round(t.Context(), always))
	require.Len(t, w.queue.stream, 1)

	w.outcomes(1)
	w.queue.emptied = true
	require.NoError(t, p.round(t.Context(), always))
	require.Len(t, w.queue.stream, 1)
	require.NoError(t, p.round(t.Context(), always))
	require.Len(t, w.appended(), 2)
	require.Zero(t, w.unpublished())
}
