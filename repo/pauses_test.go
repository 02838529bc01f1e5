package repo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

func newPause(scope job.PauseScope, target string, mode job.PauseMode) job.Pause {
	return job.Pause{ID: newID(), Scope: scope, Target: target, Mode: mode, Operator: "ann", Reason: "a release"}
}

func (f *fixture) pause(scope job.PauseScope, target string, mode job.PauseMode) job.Pause {
	p, added := must2(f.store.AddPause(f.ctx(), newPause(scope, target, mode)))(f.t)
	require.True(f.t, added)
	return p
}

func (f *fixture) unpause(p job.Pause) {
	require.Equal(f.t, p, must(f.store.RemovePause(f.ctx(), p.ID))(f.t))
}

func (f *fixture) refused(id job.ID) job.NotClaimed {
	c, not := f.tryClaim(id, 1)
	require.Nil(f.t, c)
	return not
}

func (f *fixture) resumePaused() []job.ID {
	resumed, _ := walk(f, func(after job.ID) ([]job.ID, job.ID) {
		tasks, last := must2(f.store.ResumePaused(f.ctx(), after, 2))(f.t)
		return taskIDs(tasks), last
	})
	return resumed
}

func TestPausedJobsAreParked(t *testing.T) {
	t.Parallel()
	for _, scope := range []job.PauseScope{job.PauseClient, job.PauseKind} {
		t.Run(string(scope), func(t *testing.T) {
			f := setup(t)
			first, second, third := f.submit(), f.submit(), f.submit()
			other := f.submit(func(s *job.Submission) { s.Job.ClientID, s.Job.WorkKind = newID(), job.FailImmediate })
			held := f.assigned(first, 1)
			before := f.job(third)
			target := map[job.PauseScope]string{job.PauseClient: f.client.String(), job.PauseKind: string(job.SuccessFast)}[scope]
			p := f.pause(scope, target, job.ModePause)

			for range 2 { // the second time, run_at of the job is already job.PausedUntil
				require.Equal(t, job.NotClaimed{Paused: true}, f.refused(third))
				require.Equal(t, job.NotClaimed{Paused: true}, f.refused(second))
			}
			parked := f.job(third)
			require.Equal(t, job.PausedUntil, parked.RunAt)
			require.Equal(t, before.EventSeq, parked.EventSeq, "a QUEUED job stays QUEUED, without an event")
			require.Equal(t, job.WaitingPaused, parked.WaitingFor(time.Now(), 1))
			f.assigned(other, 1)             // not paused
			f.finish(success(f.start(held))) // a claim from before the pause continues
			require.Empty(t, f.resumePaused())

			f.unpause(p)
			require.Equal(t, []job.ID{second, third}, f.resumePaused(), "jobs resume in order of creation")
			require.Equal(t, before.RunAt, f.job(third).RunAt)
			require.Equal(t, 1, one[int](f, `SELECT dispatch FROM jobs WHERE job_id = $1`, third.String()))
			f.assigned(second, 1)
			require.Empty(t, f.resumePaused())
			f.checkInvariants()
		})
	}
}

// While everything is paused or the worker is drained, waiting jobs are not changed.
func TestPausesOfEverythingKeepTheOrder(t *testing.T) {
	f := setup(t)
	id, future := f.submit(), f.submit(deferred(time.Hour))
	before := f.all(id)
	stopped := job.NotClaimed{StillWaiting: true, Stopped: true}
	all := f.pause(job.PauseAll, "", job.ModePause)
	require.Equal(t, stopped, f.refused(id))
	require.NotZero(t, f.refused(future).Wait, "a future job waits for its time")
	worker := f.pause(job.PauseWorker, f.worker.String(), job.ModeDrain)
	f.unpause(all)
	require.Equal(t, stopped, f.refused(id))
	require.Equal(t, before, f.all(id))
	require.Empty(t, f.resumePaused())
	other := f.newWorker()
	c, _ := must2(f.store.Claim(f.ctx(), other, f.submit(), 1))(t)
	require.NotNil(t, c, "another worker is not drained")
	f.unpause(worker)
	f.pause(job.PauseAll, "", job.ModeDrain) // drain mode lets existing jobs run
	f.pause(job.PauseClient, f.client.String(), job.ModeDrain)
	f.assigned(id, 1)
	f.checkInvariants()
}

// The client is paused or at its limit. A claim of a CREATED job changes nothing. A claim of a QUEUED job moves its run_at to a time that
// never comes.
func TestCreatedJobsAreNotParked(t *testing.T) {
	f := setup(t, maxHeld(1))
	for reason, parked := range map[job.WaitingReason]job.NotClaimed{
		job.WaitingPaused: {Paused: true}, job.WaitingClientLimit: {Throttled: true},
	} {
		id := f.submit(deferred(time.Hour))
		if parked.Paused {
			f.pause(job.PauseClient, f.client.String(), job.ModePause)
		} else {
			f.assigned(f.submit(), 1)
		}
		f.makeDue(id)
		before := f.all(id)
		require.Equal(t, job.NotClaimed{StillWaiting: true, Wait: time.Second}, f.refused(id), reason)
		require.Equal(t, before, f.all(id))
		f.queueDue(10)
		require.Equal(t, parked, f.refused(id), reason)
		require.Equal(t, reason, f.job(id).WaitingFor(time.Now(), 1))
		f.client = newID()
	}
}

func TestPausesDuringClaims(t *testing.T) {
	f := setup(t)
	ids := f.submitted(40)
	claiming := begin(func() error {
		errs := make([]error, len(ids))
		inParallel(len(ids), func(i int) {
			for {
				c, not, err := f.store.Claim(f.ctx(), f.worker, ids[i], 1)
				if not.Unknown {
					err = errors.New("a job is gone")
				}
				if err != nil || c != nil {
					errs[i] = err
					return
				}
				time.Sleep(time.Millisecond)
			}
		})
		return errors.Join(errs...)
	})
	for range 10 {
		f.unpause(f.pause(job.PauseClient, f.client.String(), job.ModePause))
		f.resumePaused()
	}
	testkit.Eventually(t, "all are claimed", func() bool {
		f.resumePaused()
		select {
		case err := <-claiming:
			require.NoError(t, err)
			return true
		default:
			return false
		}
	})
	f.checkInvariants()
}

func TestPausesAreKept(t *testing.T) {
	f := setup(t)
	first := f.pause(job.PauseAll, "", job.ModePause)
	again, added := must2(f.store.AddPause(f.ctx(), newPause(job.PauseAll, "", job.ModePause)))(t)
	require.False(t, added)
	require.Equal(t, first, again, "the existing pause stays unchanged")
	drain := f.pause(job.PauseAll, "", job.ModeDrain)
	require.Equal(t, job.Pauses{first, drain}, must(f.store.Pauses(f.ctx()))(t))
	removed := f.newWorker()
	f.pause(job.PauseWorker, removed.String(), job.ModeDrain)
	worker := f.pause(job.PauseWorker, f.worker.String(), job.ModeDrain)
	f.exec(`DELETE FROM workers WHERE worker_id = $1`, removed.String())
	f.clean(10)
	require.Equal(t, job.Pauses{first, drain, worker}, must(f.store.Pauses(f.ctx()))(t), "pauses of removed workers are removed")

	unknown := newPause(job.PauseWorker, newID().String(), job.ModeDrain)
	require.Equal(t, job.CodeRequestNotFound, codeOf(f.store.AddPause(f.ctx(), unknown)), "the worker does not exist")
	require.Equal(t, job.CodeRequestNotFound, codeOf(f.store.RemovePause(f.ctx(), newID())))

	f.exec(`INSERT INTO pauses (pause_id, scope, target, mode, operator, reason)
		SELECT gen_random_uuid(), 'CLIENT', gen_random_uuid()::text, 'PAUSE', 'ann', 'r' FROM generate_series(4, 100)`)
	another := newPause(job.PauseKind, "SUCCESS_FAST", job.ModePause)
	require.Equal(t, job.CodeConflict, codeOf(f.store.AddPause(f.ctx(), another)), "the number of pauses is limited")
}
