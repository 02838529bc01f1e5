package repo_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// impatient stores give up after two seconds, and on a locked row after 0.8 s.
func impatient(c *repo.Config) { c.Timeout = 2 * time.Second }

// requireTrouble checks an error that storage trouble causes.
func requireTrouble(t *testing.T, err error, codes ...job.Code) {
	require.Error(t, err)
	require.Contains(t, codes, job.CodeOf(err), "%v", err)
	var e *job.Error
	require.ErrorAs(t, err, &e)
	require.NotZero(t, e.RetryAfter)
}

func TestLockedTable(t *testing.T) {
	f := setup(t, impatient)
	l, assigned, queued := f.run(), f.assigned(f.submit(), 1), f.submit()
	before := f.all(l.JobID) + f.all(queued) + f.all(assigned.JobID)
	unlock := f.lock(`LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE`)

	// Without batches that are given up as a whole this would take minutes.
	const many = 200
	ctx := within(t, testkit.Patience/2)
	calls := map[string]func() error{
		"job":       func() error { _, err := f.store.Job(ctx, f.client, queued); return err },
		"claim":     func() error { _, _, err := f.store.Claim(ctx, f.worker, queued, 1); return err },
		"start":     func() error { _, err := f.store.Start(ctx, assigned); return err },
		"finish":    func() error { _, err := f.store.Finish(ctx, success(l)); return err },
		"cancel":    func() error { _, _, err := f.store.Cancel(ctx, f.client, queued); return err },
		"queue due": func() error { _, err := f.store.QueueDue(ctx, 10); return err },
		"load":      func() error { _, err := f.store.Load(ctx, 10); return err },
		"orphans":   func() error { _, err := f.store.Orphans(ctx, 10); return err },
		"waiting":   func() error { _, err := f.store.Waiting(ctx, job.QueueCursor{}, 0, 10); return err },
	}
	for i := range many {
		calls[fmt.Sprint("insert", i)] = func() error { _, err := f.store.InsertJob(ctx, f.submission(keyed(fmt.Sprint(i)))); return err }
	}
	var mu sync.Mutex
	errs := map[string]error{}
	var all sync.WaitGroup
	for name, call := range calls {
		all.Go(func() {
			err := call()
			mu.Lock()
			defer mu.Unlock()
			errs[name] = err
		})
	}
	all.Wait()
	for name, err := range errs {
		require.Equal(t, job.CodeDBError, job.CodeOf(err), "%s: %v", name, err)
		requireTrouble(t, err, job.CodeDBError)
	}
	unlock()

	require.Equal(t, before, f.all(l.JobID)+f.all(queued)+f.all(assigned.JobID))
	require.Equal(t, 3, f.countJobs())
	require.Zero(t, f.count("idempotency_keys"))
	f.claim(queued, 1)
	f.start(assigned)
	f.finish(success(l))
	f.checkInvariants()
}

// A row that somebody has locked costs its own caller a lock timeout. The
// callers whose items share its flush wait with it once, and go on.
func TestLockedRowSplitsOut(t *testing.T) {
	f := setup(t, impatient)
	const n = 30
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = f.submit()
	}
	locked := map[job.ID]bool{ids[0]: true, ids[1]: true, ids[15]: true}
	unlock := f.lock(`SELECT FROM jobs WHERE job_id = ANY($1) FOR UPDATE`, []string{ids[0].String(), ids[1].String(), ids[15].String()})

	// The first two occupy the flushers; the others queue up behind them.
	errs := make([]error, n)
	var calls sync.WaitGroup
	cancel := func(i int) { calls.Go(func() { _, _, errs[i] = f.store.Cancel(f.ctx(), f.client, ids[i]) }) }
	cancel(0)
	f.awaitBlocked(1)
	cancel(1)
	f.awaitBlocked(2)
	for i := 2; i < n; i++ {
		cancel(i)
	}
	calls.Wait()
	for i, id := range ids {
		if locked[id] {
			requireTrouble(t, errs[i], job.CodeDBError)
			continue
		}
		require.NoError(t, errs[i])
		require.Equal(t, job.Canceled, f.state(id))
	}
	require.Equal(t, len(locked), f.storageErrors())
	unlock()
	for id := range locked {
		_, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)
		require.Equal(t, job.Queued, before.State, "nothing had been written")
	}
	f.checkInvariants()
}

func TestReadOnlyDatabase(t *testing.T) {
	f := setup(t, impatient)
	id := f.submit()
	readOnly := func(value string) {
		f.exec(`SET default_transaction_read_only = off`) // for this session, which is to set it
		name := one[string](f, `SELECT current_database()`)
		f.exec(`ALTER DATABASE "` + name + `" SET default_transaction_read_only = ` + value)
	}
	readOnly("on")
	f.store.Pool().Reset() // as a failover would
	for range 3 {
		_, err := f.store.InsertJob(f.ctx(), f.submission())
		requireTrouble(t, err, job.CodeStorageUnavailable)
		_, err = f.store.Lead(f.ctx(), newID(), time.Second, 0)
		requireTrouble(t, err, job.CodeStorageUnavailable)
		_, _, err = f.store.Claim(f.ctx(), f.worker, id, 1)
		requireTrouble(t, err, job.CodeStorageUnavailable)
		require.Equal(t, job.Queued, f.job(id).State, "reads go on")
	}
	readOnly("off")
	testkit.Eventually(t, "it comes about", func() bool {
		_, err := f.store.InsertJob(f.ctx(), f.submission())
		return err == nil
	})
	f.claim(id, 1)
	require.Equal(t, 2, f.countJobs())
	f.checkInvariants()
}

// load keeps submitting and executing until ctx ends, whatever happens. It tells what was acknowledged, and hands on every error.
type load struct {
	mu      sync.Mutex
	jobs    []job.ID
	ended   map[job.ID]bool
	trouble []error
}

func (l *load) run(ctx context.Context, f *fixture) {
	for ctx.Err() == nil {
		sub := f.submission()
		_, err := f.store.InsertJob(f.ctx(), sub)
		if err == nil {
			l.mu.Lock()
			l.jobs = append(l.jobs, sub.Job.ID)
			l.mu.Unlock()
			err = l.execute(f, sub.Job.ID)
		}
		if err != nil {
			l.mu.Lock()
			l.trouble = append(l.trouble, err)
			l.mu.Unlock()
		}
	}
}

func (l *load) execute(f *fixture, id job.ID) error {
	c, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
	if err != nil || c == nil {
		return err
	}
	if _, err := f.store.Start(f.ctx(), c.Lease); err != nil {
		return err
	}
	if _, err := f.store.Finish(f.ctx(), success(c.Lease)); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended[id] = true
	return nil
}

func (l *load) count() (acknowledged, trouble int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.ended), len(l.trouble)
}

func TestPostgresCrash(t *testing.T) {
	t.Parallel()
	server := repotest.Server(t)
	f := setupAt(t, server.URL(), impatient)
	w := f.watch(f.store)
	leases := f.leases()
	must(leases.Renew(f.ctx(), f.worker, time.Hour))(t)

	l := &load{ended: map[job.ID]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() { l.run(ctx, f) })
	}
	more := func(n int) {
		before, _ := l.count()
		testkit.Eventually(t, "it comes about", func() bool { now, _ := l.count(); return now >= before+n })
	}
	more(50)
	require.NoError(t, server.Stop(devstack.Immediate))
	troubles := func() int { _, n := l.count(); return n }
	before := troubles()
	testkit.Eventually(t, "it comes about", func() bool { return troubles() > before+16 })
	_, err := f.store.Job(f.ctx(), f.client, newID())
	requireTrouble(t, err, job.CodeStorageUnavailable)
	_, err = leases.Renew(f.ctx(), f.worker, time.Hour)
	requireTrouble(t, err, job.CodeStorageUnavailable)
	requireTrouble(t, f.store.Ping(f.ctx()), job.CodeStorageUnavailable)
	late := repotest.OpenURL(t, server.URL(), impatient) // a process that starts meanwhile
	_, err = late.InsertJob(f.ctx(), f.submission())
	requireTrouble(t, err, job.CodeStorageUnavailable)

	require.NoError(t, server.Start(f.ctx()))
	more(50)
	stop()
	callers.Wait()
	for _, err := range l.trouble {
		requireTrouble(t, err, job.CodeStorageUnavailable, job.CodeDBError)
	}
	must(late.InsertJob(f.ctx(), f.submission()))(t)
	testkit.Eventually(t, "it comes about", func() bool { _, err := leases.Renew(f.ctx(), f.worker, time.Hour); return err == nil })
	require.False(t, receive(t, w.connected))
	for !receive(t, w.connected) { // it may have tried in vain
	}

	for _, id := range l.jobs {
		if j := f.job(id); l.ended[id] {
			require.Equal(t, job.Succeeded, j.State, "an acknowledged end")
		}
	}
	f.checkInvariants()
}
