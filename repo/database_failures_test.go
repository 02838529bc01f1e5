package repo_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// impatient stores give up after two seconds, and on a locked row after 0.8 s.
func impatient(c *repo.Config) { c.Timeout = 2 * time.Second }

// requireTrouble requires an error of the storage with one of the codes.
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

	ctx := within(t, testkit.Patience/2)
	calls := map[string]func() error{
		"job":       func() error { return errOf(f.store.Job(ctx, f.client, queued)) },
		"claim":     func() error { return errOf(f.store.Claim(ctx, f.worker, queued, 1)) },
		"start":     func() error { return errOf(f.store.Start(ctx, assigned)) },
		"finish":    func() error { return errOf(f.store.Finish(ctx, success(l))) },
		"cancel":    func() error { return errOf(f.store.Cancel(ctx, f.client, queued)) },
		"queue due": func() error { return errOf(f.store.QueueDue(ctx, 10)) },
		"load":      func() error { return errOf(f.store.Load(ctx, 10)) },
		"orphans":   func() error { return errOf(f.store.Orphans(ctx, 10)) },
		"waiting":   func() error { return errOf(f.store.Waiting(ctx, job.QueueCursor{}, 0, 10)) },
	}
	for i := range 200 { // this would take minutes if batches were not given up as a whole
		calls[fmt.Sprint("insert", i)] = func() error { return errOf(f.store.InsertJob(ctx, f.submission(keyed(fmt.Sprint(i))))) }
	}
	begun := map[string]<-chan error{}
	for name, call := range calls {
		begun[name] = begin(call)
	}
	for name, done := range begun {
		err := <-done
		require.Equal(t, job.CodeDBError, codeOf(err), "%s: %v", name, err)
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

// A locked row makes its own caller wait for a lock timeout. Callers with items in the same flush wait once, and then continue.
func TestLockedRowSplitsOut(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.Timeout = 10 * time.Second }) // both flushers must wait at the same moment
	ids := f.submitted(30)
	locked := []job.ID{ids[0], ids[1], ids[15]}
	unlock := f.lock(`SELECT FROM jobs WHERE job_id = ANY($1) FOR UPDATE`, each(locked, job.ID.String))

	// The first two occupy the flushers; the others queue up behind them.
	calls := map[job.ID]<-chan error{}
	for i, id := range ids {
		calls[id] = begin(func() error { return errOf(f.store.Cancel(f.ctx(), f.client, id)) })
		if i < 2 {
			f.awaitBlocked(i + 1)
		}
	}
	for id, canceled := range calls {
		if slices.Contains(locked, id) {
			requireTrouble(t, <-canceled, job.CodeDBError)
			continue
		}
		require.NoError(t, <-canceled)
		require.Equal(t, job.Canceled, f.state(id))
	}
	require.Equal(t, len(locked), f.storageErrors())
	unlock()
	for _, id := range locked {
		_, before := must2(f.store.Cancel(f.ctx(), f.client, id))(t)
		require.Equal(t, job.Queued, before.State, "nothing had been written")
	}
	f.checkInvariants()
}

func TestReadOnlyDatabase(t *testing.T) {
	f := setup(t, impatient)
	id := f.submit()
	readOnly := func(value string) {
		f.exec(`SET default_transaction_read_only = off`) // for this session, which must change the setting
		f.exec(`ALTER DATABASE "` + one[string](f, `SELECT current_database()`) + `" SET default_transaction_read_only = ` + value)
	}
	readOnly("on")
	f.store.Pool().Reset() // like a failover
	for range 3 {
		requireTrouble(t, errOf(f.store.InsertJob(f.ctx(), f.submission())), job.CodeStorageUnavailable)
		requireTrouble(t, errOf(f.store.Lead(f.ctx(), newID(), time.Second, 0)), job.CodeStorageUnavailable)
		requireTrouble(t, errOf(f.store.Claim(f.ctx(), f.worker, id, 1)), job.CodeStorageUnavailable)
		require.Equal(t, job.Queued, f.job(id).State, "reads go on")
	}
	readOnly("off")
	testkit.Eventually(t, "it comes about", func() bool { return errOf(f.store.InsertJob(f.ctx(), f.submission())) == nil })
	f.claim(id, 1)
	require.Equal(t, 2, f.countJobs())
	f.checkInvariants()
}

// load keeps submitting and executing jobs through all failures. It collects the acknowledged jobs and all errors.
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
		accepted, ended := err == nil, false
		if accepted {
			ended, err = execute(f, sub.Job.ID)
		}
		l.mu.Lock()
		if accepted {
			l.jobs = append(l.jobs, sub.Job.ID)
		}
		if ended {
			l.ended[sub.Job.ID] = true
		}
		if err != nil {
			l.trouble = append(l.trouble, err)
		}
		l.mu.Unlock()
	}
}

// execute reports whether the job's end was acknowledged.
func execute(f *fixture, id job.ID) (bool, error) {
	c, _, err := f.store.Claim(f.ctx(), f.worker, id, 1)
	if err != nil || c == nil {
		return false, err
	}
	if _, err := f.store.Start(f.ctx(), c.ClaimID); err != nil {
		return false, err
	}
	_, err = f.store.Finish(f.ctx(), success(c.ClaimID))
	return err == nil, err
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
	renew := func() error { return errOf(leases.Renew(f.ctx(), f.worker, time.Hour)) }
	require.NoError(t, renew())

	l := &load{ended: map[job.ID]bool{}}
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() { l.run(ctx, f) })
	}
	await := func(ended, troubles int) { // waits for this many more
		endedBefore, troublesBefore := l.count()
		testkit.Eventually(t, "it comes about", func() bool {
			endedNow, troublesNow := l.count()
			return endedNow >= endedBefore+ended && troublesNow >= troublesBefore+troubles
		})
	}
	await(50, 0)
	require.NoError(t, server.Kill())
	await(0, 17)
	late := repotest.OpenURL(t, server.URL(), impatient) // a process that starts during the outage
	for _, err := range []error{
		errOf(f.store.Job(f.ctx(), f.client, newID())), renew(), f.store.Ping(f.ctx()), errOf(late.InsertJob(f.ctx(), f.submission())),
	} {
		requireTrouble(t, err, job.CodeStorageUnavailable)
	}

	require.NoError(t, server.Start(f.ctx()))
	await(50, 0)
	stop()
	callers.Wait()
	for _, err := range l.trouble {
		requireTrouble(t, err, job.CodeStorageUnavailable, job.CodeDBError)
	}
	must(late.InsertJob(f.ctx(), f.submission()))(t)
	testkit.Eventually(t, "it comes about", func() bool { return renew() == nil })
	require.False(t, receive(t, w.connected))
	for !receive(t, w.connected) { // earlier attempts to connect may have failed
	}
	f.requireTold(w)
	for _, id := range l.jobs {
		if j := f.job(id); l.ended[id] {
			require.Equal(t, job.Succeeded, j.State, "an acknowledged end")
		}
	}
	f.checkInvariants()
}
