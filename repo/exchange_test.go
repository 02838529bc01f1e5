package repo_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// steps are a claim, a start and a finish, each of a job of its own.
type steps struct {
	f               *fixture
	queued          job.ID
	assigned, rests job.Lease // to be started, to be finished
}

func newSteps(f *fixture) steps { return steps{f, f.submit(), f.assigned(f.submit(), 1), f.run()} }

func (s steps) jobs() []string {
	return []string{s.queued.String(), s.assigned.JobID.String(), s.rests.JobID.String()}
}

func (s steps) claim(ctx context.Context) error {
	c, not, err := s.f.store.Claim(ctx, s.f.worker, s.queued, 1)
	if err == nil && c == nil {
		err = errors.New("not claimed")
	}
	if not != (job.NotClaimed{}) {
		err = errors.Join(err, errors.New("a claim says why it is none"))
	}
	return err
}

func (s steps) start(ctx context.Context) error {
	_, err := s.f.store.Start(ctx, s.assigned)
	return err
}

func (s steps) finish(ctx context.Context) error {
	_, err := s.f.store.Finish(ctx, success(s.rests))
	return err
}

// begin takes the three steps at once; wait gives their errors.
func (s steps) begin(ctx context.Context) (wait func() error) {
	errs := make([]error, 3)
	var calls sync.WaitGroup
	for i, step := range []func(context.Context) error{s.claim, s.start, s.finish} {
		calls.Go(func() { errs[i] = step(ctx) })
	}
	return func() error {
		calls.Wait()
		return errors.Join(errs...)
	}
}

func (s steps) requireDone() {
	s.f.t.Helper()
	require.Equal(s.f.t, []job.State{job.Assigned, job.Running, job.Succeeded},
		[]job.State{s.f.state(s.queued), s.f.state(s.assigned.JobID), s.f.state(s.rests.JobID)})
}

// occupySteps keeps the flushers of steps busy.
func (f *fixture) occupySteps() (release func()) {
	return f.occupy(func() { _, _, _ = f.store.Claim(f.ctx(), f.worker, newID(), 1) })
}

func TestStepsShareAnExchange(t *testing.T) {
	f := setup(t, patient)
	const each = 5
	var all []steps
	for range each {
		all = append(all, newSteps(f))
	}
	starts, ends := f.awaitFlushed("start", each), f.awaitFlushed("finish", 0)
	before := one[string](f, `SELECT pg_current_xact_id()::text`)
	release := f.occupySteps()
	var waits []func() error
	for _, s := range all {
		waits = append(waits, s.begin(f.ctx()))
	}
	f.awaitQueued("claim", 3*each)
	release()
	for _, wait := range waits {
		require.NoError(t, wait())
	}
	for _, s := range all {
		s.requireDone()
	}
	require.Equal(t, 1, one[int](f, `SELECT count(DISTINCT tx)::int FROM events WHERE tx > $1::xid8`, before), "one transaction")
	require.Equal(t, 3*each, one[int](f, `SELECT count(*)::int FROM events WHERE tx > $1::xid8`, before))
	require.Equal(t, 1, f.awaitFlushed("start", 2*each)-starts)
	require.Equal(t, 1, f.awaitFlushed("finish", each)-ends)
	f.checkInvariants()
}

// A step that fails undoes the others in the exchange; then it is left alone with its error.
func TestABadStepFailsAlone(t *testing.T) {
	f := setup(t, patient)
	s, bad := newSteps(f), f.run()
	before := f.all(bad.JobID)
	release := f.occupySteps()
	wait := s.begin(f.ctx())
	f.awaitQueued("claim", 3)
	badly := make(chan error, 1)
	go func() {
		_, err := f.store.Finish(f.ctx(), job.Finish{Lease: bad, State: job.Failed})
		badly <- err
	}()
	f.awaitQueued("claim", 4)
	release()
	require.NoError(t, wait())
	require.Equal(t, job.CodeInternal, job.CodeOf(<-badly))
	require.Equal(t, before, f.all(bad.JobID))
	s.requireDone()
	f.checkInvariants()
}

// Steps that share an exchange with one whose row is locked leave it while the
// row is still locked, and so do later ones. The one goes on when it is free.
func TestALockedRowHoldsUpItsOwnStepAlone(t *testing.T) {
	f := setup(t, patient)
	locked, free, later := newSteps(f), newSteps(f), newSteps(f)
	release := f.occupySteps()
	held, left := locked.begin(f.ctx()), free.begin(f.ctx())
	f.awaitQueued("claim", 6)
	// SHARE of the table and a lock of rows agree; the flushers wait for the former.
	unlock := f.lock(`SELECT FROM jobs WHERE job_id = ANY($1) FOR UPDATE`, locked.jobs())
	release()
	require.NoError(t, left())
	require.NoError(t, later.begin(f.ctx())())
	require.Equal(t, []job.State{job.Queued, job.Assigned, job.Running},
		[]job.State{f.state(locked.queued), f.state(locked.assigned.JobID), f.state(locked.rests.JobID)})
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`),
		"nothing waits within a transaction")
	unlock()
	require.NoError(t, held())
	for _, s := range []steps{locked, free, later} {
		s.requireDone()
	}
	require.Zero(t, f.storageErrors())
	f.checkInvariants()
}

func TestAStepWaitsForALockedRowUpToTheTimeout(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.Timeout = time.Second })
	s := newSteps(f)
	unlock := f.lock(`SELECT FROM jobs WHERE job_id = ANY($1) FOR UPDATE`, s.jobs())
	steps := []func(context.Context) error{s.claim, s.start, s.finish}
	errs := make([]error, len(steps))
	inParallel(len(steps), func(i int) { errs[i] = steps[i](f.ctx()) })
	for _, err := range errs {
		requireTrouble(t, err, job.CodeDBError)
	}
	require.Equal(t, 3, f.storageErrors())
	unlock()
	require.NoError(t, s.begin(f.ctx())())
	s.requireDone()
}

func TestAStepWhoseCallerLeavesALockedRow(t *testing.T) {
	f := setup(t, patient)
	s := newSteps(f)
	unlock := f.lock(`SELECT FROM jobs WHERE job_id = ANY($1) FOR UPDATE`, s.jobs())
	ctx, leave := context.WithCancel(f.ctx())
	errs := make(chan error, 3)
	for _, step := range []func(context.Context) error{s.claim, s.start, s.finish} {
		go func() { errs <- step(ctx) }()
	}
	testkit.Eventually(t, "it is tried again", func() bool { _, n, _ := f.flushes("claim"); return n > 2 })
	leave()
	for range cap(errs) {
		require.Contains(t, []job.Code{job.CodeDBError, job.CodeStorageUnavailable}, job.CodeOf(<-errs))
	}
	unlock()
	if err := s.begin(f.ctx())(); err != nil {
		require.ErrorIs(t, err, job.ErrStale, "the finish was on its way when its caller left")
	}
	s.requireDone()
}

// A claim of a job that becomes due that moment, and one whose row its own lost claim has locked still, get it.
func TestAClaimMeetsItsOwnLostOne(t *testing.T) {
	f := setup(t, patient)
	id := f.submit()
	tx := must(f.db.Begin(f.ctx()))(t)
	defer func() { _ = tx.Rollback(context.Background()) }()
	rows := must(tx.Query(f.ctx(), repo.Statements["step"], f.stepArguments(job.Assigned, job.Lease{JobID: id, Attempt: 1})...))(t)
	rows.Close()
	claimed := make(chan *job.Claim, 1)
	go func() {
		c, _, _ := f.store.Claim(f.ctx(), f.worker, id, 1)
		claimed <- c
	}()
	testkit.Eventually(t, "it comes about", func() bool { _, n, _ := f.flushes("claim"); return n > 1 })
	require.NoError(t, tx.Commit(f.ctx()))
	require.Equal(t, job.Lease{JobID: id, Attempt: 1, Fence: 1}, (<-claimed).Lease)
	require.Len(t, f.log(id), 3)
}

// stepArguments are what stepJobs is given for claims or starts of these jobs.
func (f *fixture) stepArguments(next job.State, leases ...job.Lease) []any {
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
