package repo_test

import (
	"context"
	"sync"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/repo"
)

// This file holds what makes batches come about on purpose: while both
// flushers of an operation wait for a lock, callers queue up behind them.

// lock runs a locking statement in a transaction of its own and holds what it
// locked until unlock, which may be called twice, or until the test ends.
func (f *fixture) lock(sql string, args ...any) (unlock func()) {
	tx := must(f.db.Begin(f.ctx()))(f.t)
	unlock = sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
	f.t.Cleanup(unlock)
	must(tx.Exec(f.ctx(), sql, args...))(f.t)
	return unlock
}

// lockRow locks one job as a transition would.
func (f *fixture) lockRow(id string) (unlock func()) {
	return f.lock(`SELECT FROM jobs WHERE job_id = $1 FOR UPDATE`, id)
}

// awaitBlocked waits until n sessions of the fixture's database wait for locks.
func (f *fixture) awaitBlocked(n int) {
	f.await(`SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, n)
}

// await waits until a query answers true.
func (f *fixture) await(sql string, args ...any) {
	testkit.Eventually(f.t, sql, func() bool { return one[bool](f, sql, args...) })
}

// awaitQueued waits until n items of an operation wait for a flusher.
func (f *fixture) awaitQueued(operation string, n int) {
	testkit.Eventually(f.t, "it comes about", func() bool { return f.store.Queued(operation) == n })
}

// occupy keeps all flushers of an operation waiting for a table lock: do must hand in one item of it. What is handed in afterwards
// queues up until release. Flushers that are busy have taken one item each.
func (f *fixture) occupy(do func()) (release func()) {
	unlock := f.lock(`LOCK TABLE jobs IN SHARE MODE`)
	var busy sync.WaitGroup
	for n := range repo.Flushers {
		busy.Go(do)
		f.awaitBlocked(n + 1)
	}
	return func() {
		unlock()
		busy.Wait()
	}
}

// occupyInserts is occupy for inserts. The store must be patient.
func (f *fixture) occupyInserts() (release func()) { return f.occupy(func() { f.submit() }) }

// together does n things at once so that they share a flush: they queue up behind busy flushers of the operation, which
// occupy keeps so.
func (f *fixture) together(operation string, occupy func(), n int, do func(i int)) {
	release := f.occupy(occupy)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { do(i) })
	}
	f.awaitQueued(operation, n)
	release()
	calls.Wait()
}

// patient lets statements wait for locks as long as a test takes.
func patient(c *repo.Config) { c.Timeout = 3 * testkit.Patience }
