package repo_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

type steps struct {
	f                 *fixture
	queued            job.ID
	assigned, running job.ClaimID
}

func newSteps(f *fixture) steps { return steps{f, f.submit(), f.assigned(f.submit(), 1), f.run()} }

func (s steps) lock() (unlock func()) {
	return s.f.lock(`SELECT FROM jobs WHERE job_id = ANY($1) FOR UPDATE`,
		[]string{s.queued.String(), s.assigned.JobID.String(), s.running.JobID.String()})
}

func (s steps) begin(ctx context.Context) (done []<-chan error) {
	return []<-chan error{
		begin(func() error {
			c, not, err := s.f.store.Claim(ctx, s.f.worker, s.queued, 1)
			if err == nil && (c == nil || not != job.NotClaimed{}) {
				err = fmt.Errorf("not claimed, or both claimed and refused: %+v", not)
			}
			return err
		}),
		begin(func() error { return errOf(s.f.store.Start(ctx, s.assigned)) }),
		begin(func() error { return errOf(s.f.store.Finish(ctx, success(s.running))) }),
	}
}

func (s steps) states() []job.State {
	return []job.State{s.f.state(s.queued), s.f.state(s.assigned.JobID), s.f.state(s.running.JobID)}
}

func (s steps) requireDone(done []<-chan error) {
	s.f.t.Helper()
	for _, step := range done {
		require.NoError(s.f.t, <-step)
	}
	require.Equal(s.f.t, []job.State{job.Assigned, job.Running, job.Succeeded}, s.states())
}

func (f *fixture) occupySteps() (release func()) {
	return f.occupy(func() { _, _, _ = f.store.Claim(f.ctx(), f.worker, newID(), 1) })
}

func TestStepsShareATransaction(t *testing.T) {
	f := setup(t, patient)
	const each = 5
	all, begun := make([]steps, each), make([][]<-chan error, each)
	for i := range all {
		all[i] = newSteps(f)
	}
	starts, ends := f.awaitFlushed("start", each), f.awaitFlushed("finish", 0)
	before := one[string](f, `SELECT pg_current_xact_id()::text`)
	release := f.occupySteps()
	for i, s := range all {
		begun[i] = s.begin(f.ctx())
	}
	f.awaitQueued("claim", 3*each)
	release()
	for i, s := range all {
		s.requireDone(begun[i])
	}
	require.Equal(t, 1, one[int](f, `SELECT count(DISTINCT tx)::int FROM events WHERE tx > $1::xid8`, before), "one transaction")
	require.Equal(t, 3*each, f.count(`events WHERE tx > $1::xid8`, before))
	require.Equal(t, 1, f.awaitFlushed("start", 2*each)-starts)
	require.Equal(t, 1, f.awaitFlushed("finish", each)-ends)
	f.checkInvariants()
}

// If the row of one step is locked, other steps complete anyway, in the same flush and in later flushes. The locked step completes once the
// row is unlocked.
func TestLockedRowDelaysOnlyItsOwnStep(t *testing.T) {
	f := setup(t, patient)
	locked, free, later := newSteps(f), newSteps(f), newSteps(f)
	release := f.occupySteps()
	held, left := locked.begin(f.ctx()), free.begin(f.ctx())
	f.awaitQueued("claim", 6)
	// The flushers wait, because the table has a SHARE lock. This lock does not prevent row locks.
	unlock := locked.lock()
	release()
	free.requireDone(left)
	later.requireDone(later.begin(f.ctx()))
	require.Equal(t, []job.State{job.Queued, job.Assigned, job.Running}, locked.states())
	require.Zero(t, f.count(`pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`),
		"nothing waits within a transaction")
	unlock()
	locked.requireDone(held)
	require.Zero(t, f.storageErrors())
	f.checkInvariants()
}

func TestStepWaitsForALockedRowUpToTheTimeout(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.Timeout = time.Second })
	s := newSteps(f)
	unlock := s.lock()
	for _, step := range s.begin(f.ctx()) {
		requireTrouble(t, <-step, job.CodeDBError)
	}
	require.Equal(t, 3, f.storageErrors())
	unlock()
	s.requireDone(s.begin(f.ctx()))
}

func TestStepOnALockedRowEndsWithItsCaller(t *testing.T) {
	f := setup(t, patient)
	s := newSteps(f)
	unlock := s.lock()
	ctx, leave := context.WithCancel(f.ctx())
	begun := s.begin(ctx)
	testkit.Eventually(t, "the steps are tried again", func() bool { _, n, _ := f.flushes("claim"); return n > 2 })
	leave()
	for _, step := range begun {
		require.Contains(t, []job.Code{job.CodeDBError, job.CodeStorageUnavailable}, codeOf(<-step))
	}
	unlock()
	for _, step := range s.begin(f.ctx()) {
		if err := <-step; err != nil {
			require.ErrorIs(t, err, job.ErrStale, "the finish completed after its caller left")
		}
	}
	s.requireDone(nil)
}

// If an earlier claim's transaction still locks the job, the worker's next claim waits and returns the same claim.
func TestClaimRepeatsALostOne(t *testing.T) {
	f := setup(t, patient)
	id := f.submit()
	tx := f.begin()
	must(tx.Exec(f.ctx(), repo.Statements["step"], f.stepArguments(job.Assigned, job.ClaimID{JobID: id, Attempt: 1})...))(t)
	var c *job.Claim
	claimed := begin(func() (err error) { c, _, err = f.store.Claim(f.ctx(), f.worker, id, 1); return err })
	testkit.Eventually(t, "the claim is tried again", func() bool { _, n, _ := f.flushes("claim"); return n > 1 })
	require.NoError(t, tx.Commit(f.ctx()))
	require.NoError(t, <-claimed)
	require.Equal(t, job.ClaimID{JobID: id, Attempt: 1, Fence: 1}, c.ClaimID)
	require.Len(t, f.log(id), 3)
}

func (f *fixture) stepArguments(next job.State, leases ...job.ClaimID) []any {
	n := len(leases)
	ids, events, workers, attempts, fences := make([]string, n), make([]string, n), make([]*string, n), make([]int, n), make([]int64, n)
	for i, l := range leases {
		ids[i], events[i], attempts[i], fences[i] = l.JobID.String(), newID().String(), l.Attempt, l.Fence
		if next == job.Assigned {
			worker := f.worker.String()
			workers[i] = &worker
		}
	}
	text := make([]*string, n)
	return []any{
		ids, attempts, slices.Repeat([]string{string(next)}, n), fences, workers, events,
		text, text, make([]*bool, n), make([]*int, n), text, text, make([]*time.Duration, n), make([]bool, n), text,
		text, make([][]byte, n), make([][]byte, n), make([]*time.Time, n), time.Hour,
	}
}

func (f *fixture) cancelArguments(id job.ID) []any {
	return []any{[]string{id.String()}, []string{f.client.String()}, make([]*string, 1)}
}
