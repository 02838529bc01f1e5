package repo_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// impatient makes a store give up after two seconds, and after 0.8 s if a row is locked.
func impatient(c *repo.Config) { c.Timeout = 2 * time.Second }

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
	for i := range 200 { // this would take minutes if the items of a failed flush were tried again one by one
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

// Calls that change locked rows wait for the lock timeout and fail. Other calls in the same flush wait for at most one lock timeout, and
// then succeed.
func TestLockedRowSplitsOut(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.Timeout = 10 * time.Second }) // long enough that both flushers wait at the same time
	ids := f.submitted(30)
	locked := []job.ID{ids[0], ids[1], ids[15]}
	unlock := f.lock(`SELECT FROM jobs WHERE job_id = ANY($1) FOR UPDATE`, each(locked, job.ID.String))

	// The first two calls block both flushers, so the others wait in the queue.
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
		require.Equal(t, job.Queued, before.State, "the failed cancel wrote nothing")
	}
	f.checkInvariants()
}
