package maintenance

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func deferred(at string) repotest.Columns {
	return repotest.Columns{"type": "'DEFERRED'", "state": "'CREATED'", "queued_at": "NULL", "execution_at": at, "run_at": at,
		"created_at": "now() - interval '2 h'", "updated_at": "now() - interval '2 h'", "event_seq": "1"}
}

func TestDueJobsAreQueued(t *testing.T) {
	w := newWorld(t)
	missed, later := deferred("now() - interval '1 h'"), deferred("now() + interval '1 h'")
	missed["callback"] = "'https://receiver.example'"
	w.insert("jobs", 1, missed)
	w.insert("jobs", 1, later)
	require.NoError(t, w.round("scheduler"))
	require.Equal(t, 1, w.count("jobs WHERE state = 'QUEUED' AND callback IS NOT NULL"), "a missed time is due immediately")
	require.Equal(t, 1, w.count("jobs WHERE state = 'CREATED'"))
	require.Equal(t, []float64{1, 1}, []float64{float64(w.repaired("scheduler")), w.Sum("jobs_queued_total")})
	require.InDelta(t, 3600, w.Sum("job_schedule_lateness_seconds"), 600)
	require.Len(t, w.queue.Delivered(), 1, "it has a callback")
	require.Len(t, w.Log.Lines(t, map[string]any{"action": "schedule", "next_state": "QUEUED"}), 1)
}

type firstPublish struct {
	*fakeQueue
	once  sync.Once
	first func()
}

func (q *firstPublish) Publish(n job.Notification) {
	q.once.Do(q.first)
	q.fakeQueue.Publish(n)
}

func TestManyDueJobsAreQueuedBeforeTheyArePublished(t *testing.T) {
	const due = (schedulerLanes + 1) * schedulerBatch
	w := newWorld(t)
	w.insert("jobs", due, deferred("now() - interval '1 h'"))
	w.m.Queue = &firstPublish{fakeQueue: w.queue, first: func() { require.Zero(t, w.count("jobs WHERE state = 'CREATED'")) }}
	require.NoError(t, w.round("scheduler"))
	require.Len(t, w.queue.Notifications(), due)
	require.Equal(t, due, w.repaired("scheduler"))
}

func TestNotificationsOfQueuedJobsDespiteAFailure(t *testing.T) {
	w := newWorld(t)
	w.insert("jobs", 2*schedulerBatch, deferred("now() - interval '1 h'"))
	last := deferred("now() - interval '1 min'")
	last["job_id"] = quoted(apptest.ClientB)
	w.insert("jobs", 1, last)
	repotest.Refuse(t, w.url, "UPDATE ON jobs FOR EACH ROW WHEN (NEW.job_id = "+quoted(apptest.ClientB)+")")
	require.Error(t, w.round("scheduler"))
	queued := w.count("jobs WHERE state = 'QUEUED'")
	require.GreaterOrEqual(t, queued, schedulerBatch)
	require.Equal(t, []int{queued, queued}, []int{w.repaired("scheduler"), len(w.queue.Notifications())})
}

func (w *world) heldByTheDead() repotest.Columns {
	dead := app.NewID()
	w.exec(`INSERT INTO workers (worker_id, name, concurrency, state, expires_at) VALUES ($1, 'w', 1, 'ALIVE', now() - interval '1 min')`,
		dead.String())
	return repotest.Columns{"state": "'ASSIGNED'", "worker_id": quoted(dead), "assigned_at": "now()", "fence": "1"}
}

func TestJobsOfDeadWorkersAreReleased(t *testing.T) {
	w := newWorld(t)
	held := w.heldByTheDead()
	w.insert("jobs", rescuerBatch, held)
	held["state"], held["started_at"] = "'RUNNING'", "now()"
	w.insert("jobs", rescuerBatch, held)
	require.NoError(t, w.round("rescuer"))
	require.Zero(t, w.count("jobs WHERE worker_id IS NOT NULL"), "one round releases all jobs")
	for _, state := range []job.State{job.Assigned, job.Running} {
		require.EqualValues(t, rescuerBatch, w.Metric(w.Metrics.LeasesExpired.WithLabelValues(string(state))))
	}
}

func TestReleasedJobsBackOff(t *testing.T) {
	for refused, want := range map[string][]int{
		"INSERT ON reports": {3, 0, 0, 2},
		"UPDATE ON jobs FOR EACH ROW WHEN (OLD.state = 'ASSIGNED')": {0, 2, 3, 0},
	} {
		t.Run(refused, func(t *testing.T) {
			w := newWorld(t)
			held := w.heldByTheDead()
			held["lease_expiries"] = "i - 1"
			w.insert("jobs", 3, held)
			held["state"], held["started_at"] = "'RUNNING'", "now()"
			w.insert("jobs", 2, held)
			accept := repotest.Refuse(t, w.url, refused)
			require.Error(t, w.round("rescuer"))
			var states []int
			for _, state := range []string{"QUEUED", "FAILED", "ASSIGNED", "RUNNING"} {
				states = append(states, w.count("jobs WHERE state = '"+state+"'"))
			}
			require.Equal(t, want, states)
			accept()
			require.NoError(t, w.round("rescuer"))
			require.Equal(t, []float64{0, 1, 2}, repotest.All[float64](t, w.url,
				`SELECT extract(epoch FROM run_at - queued_at)::float8 FROM jobs WHERE state = 'QUEUED' ORDER BY lease_expiries`))
		})
	}
}

func TestMaintenanceCompletesBatches(t *testing.T) {
	w := newWorld(t)
	batch := func(id job.ID, open bool) {
		w.exec(`INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused)
			VALUES ($1, $2, now(), 'en', 'request-1', '[]', 0)`, id.String(), apptest.ClientA.String())
		if open {
			w.insert("jobs", 1, repotest.Columns{"batch_id": quoted(id), "client_id": quoted(apptest.ClientA)})
		}
	}
	early, late := app.NewID(), app.NewID()
	batch(early, false)
	batch(late, false)
	w.m.completeAfter = early
	accept := repotest.Refuse(t, w.url, "UPDATE ON batches")
	require.Error(t, w.round("batch_completer"))
	require.Equal(t, early, w.m.completeAfter, "the position stays after a failure")
	accept()
	require.NoError(t, w.round("batch_completer"))
	completed := "batches WHERE completed_at IS NOT NULL"
	require.Equal(t, []int{1, 1}, []int{w.count(completed), w.count(completed + " AND batch_id = " + quoted(late))})
	for range batches.ChunkSize + 5 {
		batch(app.NewID(), false)
	}
	batch(app.NewID(), true)
	require.NoError(t, w.round("batch_completer"))
	const all = 2 + batches.ChunkSize + 5
	require.Equal(t, []int{all, 1}, []int{w.count(completed), w.count("batches WHERE completed_at IS NULL")})
	require.Equal(t, all, w.repaired("batch_completer"))
	require.EqualValues(t, all, w.Metric(w.Metrics.BatchesCompleted.WithLabelValues("COMPLETED")))
}

func TestCleaningContinuesWhileThereIsMore(t *testing.T) {
	w := newWorld(t)
	old := "now() - interval '40 d'"
	w.insert("jobs", 2*cleanerBatch+1, repotest.Columns{"state": "'SUCCEEDED'", "outcome": "'SUCCESS'", "started_at": old, "finished_at": old})
	require.NoError(t, w.roundWhile("cleaner", times(1)))
	require.Equal(t, cleanerBatch+1, w.count("jobs"), "the round ends after one batch")
	require.NoError(t, w.round("cleaner"))
	require.Zero(t, w.count("jobs"))
}

func TestTheLeaderWritesTheHistory(t *testing.T) {
	w := newWorld(t)
	missing := len(apptest.Must(w.store.MissingHistory(t.Context()))(t))
	require.Greater(t, missing, 50)
	accept := repotest.Refuse(t, w.url, "INSERT ON history")
	asked := 0
	require.Error(t, w.roundWhile("history", func() bool { asked++; return true }))
	require.Equal(t, 1, asked, "the round ends with the first failure")
	accept()
	require.NoError(t, w.roundWhile("history", times(1)))
	require.Equal(t, 1, w.count("history WHERE width = 10"))
	require.NoError(t, w.round("history"))
	require.Less(t, len(apptest.Must(w.store.MissingHistory(t.Context()))(t)), 10, "only the latest buckets are still open")
	require.NotZero(t, w.count("history WHERE width = 60"))
}

func TestStepsOfAClockAreNoticed(t *testing.T) {
	t.Parallel()
	start := time.Now()
	var w stepWatch
	look := func(at, way time.Duration, ahead time.Duration) time.Duration {
		return w.observe(start.Add(at+way/2+ahead), at, at+way).Round(time.Second)
	}
	require.Zero(t, look(0, 100*time.Millisecond, 0), "first observation")
	require.Zero(t, look(time.Second, 100*time.Millisecond, 100*time.Millisecond), "a slewed clock is not a step")
	require.Equal(t, time.Hour, look(2*time.Second, 100*time.Millisecond, time.Hour))
	require.Zero(t, look(3*time.Second, 2*time.Second, 2*time.Hour), "a slow observation is ignored")
	require.Zero(t, look(6*time.Second, time.Millisecond, time.Hour))
	require.Equal(t, -time.Hour, look(7*time.Second, time.Millisecond, 0))
	require.Zero(t, look(24*time.Hour, time.Millisecond, 0))
}

func TestStrandedRowsAreSearchedAfterClockStep(t *testing.T) {
	t.Parallel()
	var w clockWatch
	at := time.Duration(0)
	searches := func(d time.Duration, moved int) (n int) {
		for end := at + d; at < end; {
			at += time.Second
			if w.due(0, at, at) {
				n++
				w.searched(moved, at, at+10*time.Millisecond)
			}
		}
		return n
	}
	require.Positive(t, searches(time.Second, 0), "a new leader searches")
	require.Positive(t, searches(2*strandedTime, 0))
	require.Zero(t, searches(10*strandedTime, 0), "no clock was set")
	require.False(t, w.due(time.Hour, at, at), "a step forward starts no search")
	require.True(t, w.due(-time.Hour, at, at))
	require.Positive(t, searches(time.Hour, 0), "the search continues for the duration of the step")
	require.Positive(t, searches(2*strandedTime, 0))
	require.Zero(t, searches(10*strandedTime, 0))
	at += leaderLease
	require.Positive(t, searches(time.Second, 1), "after a gap in the leadership")
	require.Positive(t, searches(10*strandedTime, 1), "while stranded rows are found")
}

func TestStrandedRowsAreMoved(t *testing.T) {
	w := newWorld(t)
	ahead := "now() + interval '1 h'"
	w.insert("jobs", 3, repotest.Columns{"created_at": ahead, "updated_at": ahead, "queued_at": ahead, "run_at": ahead})
	w.insert("deliveries", strandedBatch+5, repotest.Columns{"created_at": ahead, "next_attempt_at": ahead,
		"client_id": quoted(apptest.ClientA), "endpoint_id": quoted(apptest.ClientB)})
	require.NoError(t, w.round("clock"))
	require.Equal(t, 3, w.repaired(app.RepairStranded))
	require.EqualValues(t, strandedBatch+5, w.Metric(w.Metrics.DeliveriesRepaired.WithLabelValues(app.RepairStranded)))
	require.Zero(t, w.Sum("clock_steps_total"))
	require.NoError(t, w.round("clock"))
	require.Equal(t, 3, w.repaired(app.RepairStranded))
}

func TestPausedJobsAreCheckedAfterAChange(t *testing.T) {
	t.Parallel()
	now := time.Now()
	var s pauseSweep
	looks := func(after time.Duration, pauses ...job.Pause) bool {
		now = now.Add(after)
		due := s.due(pauses, now)
		if due {
			s.swept = now
		}
		return due
	}
	one := job.Pause{ID: app.NewID()}
	require.True(t, looks(0), "first sweep of a leader")
	require.False(t, looks(time.Second))
	require.True(t, looks(time.Second, one))
	require.True(t, looks(pauseOverlap, one), "a claim may still defer a job")
	require.False(t, looks(1, one))
	require.True(t, looks(0))
	require.False(t, looks(pauseOverlap+1))
	require.True(t, looks(pauseSweepEvery))
}

func TestThrottledJobsAreDispatched(t *testing.T) {
	for limit, want := range map[int]int{0: throttleBatch + 1, 7: 7} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			w := newWorld(t, func(d *Deps) { d.ClientMaxRunning = limit })
			throttled := repotest.Columns{"client_id": quoted(apptest.ClientA), "run_at": "'" + job.ThrottledUntil.Format(time.RFC3339) + "'"}
			w.insert("jobs", throttleBatch+1, throttled)
			require.NoError(t, w.round("throttle"))
			require.Len(t, w.queue.Tasks, want)
			require.Equal(t, want, w.repaired(app.Resumed))
		})
	}
	require.Equal(t, []time.Duration{throttleIntervalIdle, throttleInterval},
		[]time.Duration{(&Maintenance{}).throttleInterval(), (&Maintenance{Deps: Deps{ClientMaxRunning: 1}}).throttleInterval()})
}
