package maintenance

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (w *world) backlog(n int) (ids []job.ID) {
	waiting := "now() - interval '1 day' + i * interval '1 s'"
	w.insert("jobs", n, repotest.Columns{"created_at": waiting, "updated_at": waiting, "queued_at": waiting, "run_at": waiting})
	for _, id := range repotest.All[[16]byte](w.T, w.url, `SELECT job_id FROM jobs ORDER BY run_at`) {
		ids = append(ids, id)
	}
	return ids
}

func (w *world) ensured() [][]job.ID {
	w.T.Helper()
	w.queue.Ensured = nil
	require.NoError(w.T, w.round("relay"))
	return w.queue.Ensured
}

func TestRelayEnqueuesTheOldestFirst(t *testing.T) {
	const n = 2*relayBatch + 7
	w := newWorld(t)
	ids := w.backlog(n)
	first, second, third := ids[:relayBatch], ids[relayBatch:2*relayBatch], ids[2*relayBatch:]
	require.Equal(t, [][]job.ID{first, second, third}, w.ensured(), "a batch with missing tasks is followed by the next one")
	require.Equal(t, n, w.repaired("relay"))

	require.Equal(t, [][]job.ID{first}, w.ensured(), "the round ends if the oldest jobs have tasks")
	delete(w.queue.Tasks, ids[n-1])
	delete(w.queue.Tasks, ids[1])
	require.Equal(t, [][]job.ID{first, second}, w.ensured())
	w.exec(`DELETE FROM jobs WHERE job_id IN (SELECT job_id FROM jobs ORDER BY run_at LIMIT $1)`, 2*relayBatch)
	require.Equal(t, [][]job.ID{third}, w.ensured(), "a lost task is found once its job is among the oldest")
	require.Equal(t, n+2, w.repaired("relay"))
}

func TestRelayLooksBehindTheOldest(t *testing.T) {
	w := newWorld(t)
	ids := w.backlog(3*relayBatch + 1)
	w.ensured()
	for _, lost := range []job.ID{ids[relayBatch+1], ids[3*relayBatch], ids[2*relayBatch]} {
		delete(w.queue.Tasks, lost)
		for rounds := 0; !w.queue.Tasks[lost]; rounds++ {
			require.Less(t, rounds, 4*furtherEvery, "found in one walk over all jobs")
			w.ensured()
		}
	}
}

func TestRelayLeavesYoungJobs(t *testing.T) {
	t.Parallel()
	r := relay{clock: clock.New()}
	require.Equal(t, relayMinAge, r.minAge())
	r.clock.Set(clock.Setting{Number: 1, Real: time.Now(), Time: time.Now(), Rate: 1}, 0)
	require.Zero(t, r.minAge())
}

func TestRelayStops(t *testing.T) {
	w := newWorld(t)
	w.backlog(3 * relayBatch)
	require.NoError(t, w.roundWhile("relay", times(2)))
	require.Len(t, w.queue.Ensured, 2)
	w.queue.fail(apptest.ErrQueue)
	require.ErrorIs(t, w.round("relay"), apptest.ErrQueue)
	w.queue.fail(nil)
	w.store.Close()
	require.Error(t, w.round("relay"))
	require.Len(t, w.queue.Ensured, 2)
}
