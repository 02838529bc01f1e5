package repo_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// stop stores a pause.
func (f *fixture) stop(scope job.PauseScope, target string, mode job.PauseMode) job.Pause {
	p, added := must2(f.store.AddPause(f.ctx(), job.Pause{
		ID: newID(), Scope: scope, Target: target, Mode: mode, Operator: "ann", Reason: "a release",
	}))(f.t)
	require.True(f.t, added)
	return p
}

func (f *fixture) goOn(p job.Pause) {
	require.Equal(f.t, p, must(f.store.RemovePause(f.ctx(), p.ID))(f.t))
}

// refused claims a job, and gives why it is not claimed.
func (f *fixture) refused(id job.ID) job.NotClaimed {
	c, not := must2(f.store.Claim(f.ctx(), f.worker, id, 1))(f.t)
	require.Nil(f.t, c)
	return not
}

// resumePaused resumes what no pause stops any more, in steps of two jobs.
func (f *fixture) resumePaused() (resumed []job.ID) {
	for after := (job.ID{}); ; {
		tasks, last := must2(f.store.ResumePaused(f.ctx(), after, 2))(f.t)
		resumed = append(resumed, taskIDs(tasks)...)
		if last.IsZero() {
			return resumed
		}
		after = last
	}
}

func TestPausedJobsArePutAside(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		scope  job.PauseScope
		target func(f *fixture) string
	}{
		{job.PauseClient, func(f *fixture) string { return f.client.String() }},
		{job.PauseKind, func(*fixture) string { return string(job.SuccessFast) }},
	} {
		t.Run(string(test.scope), func(t *testing.T) {
			f := setup(t)
			kind := func(s *job.Submission) { s.Job.WorkKind = job.SuccessFast }
			first, second, third := f.submit(kind), f.submit(kind), f.submit(kind)
			other := f.submit(func(s *job.Submission) { s.Job.ClientID, s.Job.WorkKind = newID(), job.FailImmediate })
			held := f.assigned(first, 1)
			before := f.job(third)
			p := f.stop(test.scope, test.target(f), job.ModePause)

			for range 2 { // the second time it is aside already
				require.Equal(t, job.NotClaimed{Paused: true}, f.refused(third))
				require.Equal(t, job.NotClaimed{Paused: true}, f.refused(second))
			}
			aside := f.job(third)
			require.Equal(t, job.PausedUntil, aside.RunAt)
			require.Equal(t, before.EventSeq, aside.EventSeq, "no event: it is QUEUED as before")
			require.Equal(t, job.WaitingPaused, aside.WaitingFor(time.Now(), 1))
			f.assigned(other, 1) // is not concerned
			f.start(held)        // nor is what was claimed before
			f.finish(success(held))
			require.Empty(t, f.resumePaused())

			f.goOn(p)
			require.Equal(t, []job.ID{second, third}, f.resumePaused(), "in the order of their creation")
			require.Equal(t, before.RunAt, f.job(third).RunAt)
			require.Equal(t, 1, one[int](f, `SELECT dispatch FROM jobs WHERE job_id = $1`, third.String()))
			f.assigned(second, 1)
			require.Empty(t, f.resumePaused())
			f.checkInvariants()
		})
	}
}

// Where everything is paused, or the worker is drained, jobs keep their place: nobody fetches their tasks.
func TestWhatIsStoppedAsAWholeKeepsItsPlace(t *testing.T) {
	f := setup(t)
	id, future := f.submit(), f.submit(deferred(time.Hour))
	before := f.all(id)
	stopped := job.NotClaimed{StillWaiting: true, Stopped: true}
	all := f.stop(job.PauseAll, "", job.ModePause)
	require.Equal(t, stopped, f.refused(id))
	require.NotZero(t, f.refused(future).Wait, "its time is to come, whatever is paused")
	worker := f.stop(job.PauseWorker, f.worker.String(), job.ModeDrain)
	f.goOn(all)
	require.Equal(t, stopped, f.refused(id))
	require.Equal(t, before, f.all(id))
	require.Empty(t, f.resumePaused())
	other := f.newWorker()
	c, _ := must2(f.store.Claim(f.ctx(), other, f.submit(), 1))(t)
	require.NotNil(t, c, "another worker is not drained")
	f.goOn(worker)
	f.stop(job.PauseAll, "", job.ModeDrain) // what was accepted is run
	f.stop(job.PauseClient, f.client.String(), job.ModeDrain)
	f.assigned(id, 1)
	f.checkInvariants()
}

// A job whose time has come while it is CREATED is put aside once it is QUEUED.
func TestCreatedJobsAreNotPutAside(t *testing.T) {
	f := setup(t)
	id := f.submit(deferred(time.Hour))
	f.stop(job.PauseClient, f.client.String(), job.ModePause)
	f.makeDue(id)
	before := f.all(id)
	require.Equal(t, job.NotClaimed{StillWaiting: true, Wait: time.Second}, f.refused(id))
	require.Equal(t, before, f.all(id))
	f.queueDue(10)
	require.Equal(t, job.NotClaimed{Paused: true}, f.refused(id))
	require.Equal(t, job.WaitingPaused, f.job(id).WaitingFor(time.Now(), 1))
}

// Jobs are paused and resumed while they are claimed: none is lost, none is claimed while it is paused.
func TestPausesBesideClaims(t *testing.T) {
	f := setup(t)
	var ids []job.ID
	for range 40 {
		ids = append(ids, f.submit())
	}
	var claiming sync.WaitGroup
	errs := make([]error, len(ids))
	for i, id := range ids {
		claiming.Go(func() {
			for {
				c, not, err := f.store.Claim(f.ctx(), f.worker, id, 1)
				if err != nil || c != nil {
					errs[i] = err
					return
				}
				if not.Unknown {
					errs[i] = errors.New("a job is gone")
					return
				}
				time.Sleep(time.Millisecond) // as a worker pauses
			}
		})
	}
	for range 10 {
		p := f.stop(job.PauseClient, f.client.String(), job.ModePause)
		f.goOn(p)
		f.resumePaused()
	}
	done := make(chan struct{})
	go func() { claiming.Wait(); close(done) }()
	testkit.Eventually(t, "it comes about", func() bool {
		f.resumePaused()
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	f.checkInvariants()
}

func TestPausesAreKept(t *testing.T) {
	f := setup(t)
	first := f.stop(job.PauseAll, "", job.ModePause)
	again, added := must2(f.store.AddPause(f.ctx(), job.Pause{
		ID: newID(), Scope: job.PauseAll, Mode: job.ModePause, Operator: "bob", Reason: "another",
	}))(t)
	require.False(t, added)
	require.Equal(t, first, again, "the first stays as it is")
	drain := f.stop(job.PauseAll, "", job.ModeDrain)
	all := must(f.store.Pauses(f.ctx()))(t)
	require.Equal(t, job.Pauses{first, drain}, all)

	_, _, err := f.store.AddPause(f.ctx(), job.Pause{
		ID: newID(), Scope: job.PauseWorker, Target: newID().String(), Mode: job.ModeDrain, Operator: "ann", Reason: "r",
	})
	require.Equal(t, job.CodeRequestNotFound, job.CodeOf(err), "there is no such worker")
	_, err = f.store.RemovePause(f.ctx(), newID())
	require.Equal(t, job.CodeRequestNotFound, job.CodeOf(err))

	f.exec(`INSERT INTO pauses (pause_id, scope, target, mode, operator, reason)
		SELECT gen_random_uuid(), 'CLIENT', gen_random_uuid()::text, 'PAUSE', 'ann', 'r' FROM generate_series(3, 100)`)
	_, _, err = f.store.AddPause(f.ctx(), job.Pause{
		ID: newID(), Scope: job.PauseKind, Target: "SUCCESS_FAST", Mode: job.ModePause, Operator: "ann", Reason: "r",
	})
	require.Equal(t, job.CodeConflict, job.CodeOf(err), "each claim looks at all of them")
}

// A drained worker's row is removed some time after it stopped, and with it what operators said of it.
func TestPausesOfWorkersThatAreGone(t *testing.T) {
	f := setup(t)
	kept := f.stop(job.PauseWorker, f.worker.String(), job.ModeDrain)
	gone := f.newWorker()
	f.stop(job.PauseWorker, gone.String(), job.ModeDrain)
	f.exec(`DELETE FROM workers WHERE worker_id = $1`, gone.String())
	must(f.store.Clean(f.ctx(), 10))(t)
	require.Equal(t, job.Pauses{kept}, must(f.store.Pauses(f.ctx()))(t))
}
