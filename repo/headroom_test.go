package repo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func loadOf(n int) job.Load { return job.Load{Active: n, Queued: n} }

func newLease(change ...func(*job.Lease)) job.Lease {
	l := job.Lease{ID: newID(), Process: newID(), New: true, Limit: loadOf(20), Expiry: time.Hour, Need: loadOf(1), Want: loadOf(100)}
	for _, f := range change {
		f(&l)
	}
	return l
}

func (f *fixture) renew(l *job.Lease) int {
	f.t.Helper()
	h := must(f.store.RenewLease(f.ctx(), *l))(f.t)
	require.Equal(f.t, h.Granted.Active, h.Granted.Queued)
	l.New, l.Stored = false, job.Load{}
	return h.Granted.Active
}

func under(l job.Lease) func(*job.Submission) { return func(s *job.Submission) { s.Job.Lease = l.ID } }

func TestLeasesShareTheRoom(t *testing.T) {
	f := setup(t)
	a, b := newLease(), newLease()
	require.Equal(t, 20, f.renew(&a), "a single lease may have all the room")
	require.Equal(t, 0, f.renew(&b))
	a.Keep, a.Want = loadOf(4), loadOf(0)
	require.Equal(t, 4, f.renew(&a), "the lease keeps the room that it may have used")
	require.Equal(t, 8, f.renew(&b), "a share of the free room")
	a.Keep, a.Want = loadOf(4), loadOf(100)
	require.Equal(t, 6, f.renew(&a))
	b.Need = loadOf(14)
	require.Equal(t, 14, f.renew(&b), "a large request gets all that it needs")
	a.Need = loadOf(10)
	require.Equal(t, 4, f.renew(&a), "a request that does not fit gets its share")

	a.Keep, a.Need, a.Stored = loadOf(0), loadOf(1), loadOf(4)
	require.Equal(t, 1, f.renew(&a))
	require.Equal(t, 4, one[int](f, `SELECT active::int FROM headroom`))
	h := must(f.store.RenewLease(f.ctx(), b))(t)
	require.Equal(t, 2, h.Processes)
}

func TestCountReplacesTheBound(t *testing.T) {
	f := setup(t)
	a := newLease()
	f.renew(&a)
	f.submit()
	counted := must(f.store.Load(f.ctx(), 100))(t)
	require.Equal(t, job.Counted{Jobs: loadOf(1)}, counted)
	a.Stored = loadOf(5) // the lease reports five jobs while the count runs
	f.renew(&a)
	a.Counted, a.Stored = &counted, loadOf(2)
	f.renew(&a)
	require.Equal(t, 1+5+2, one[int](f, `SELECT active::int FROM headroom`))
	require.Equal(t, loadOf(7), must(f.store.Load(f.ctx(), 100))(t).Reported)
}

func TestAnEndedLeaseStoresNothing(t *testing.T) {
	f := setup(t)
	a, b := newLease(), newLease()
	f.renew(&a)
	f.submit(under(a))
	failed := f.force(job.Failed)

	f.exec(`UPDATE headroom_leases SET expires_at = now() - interval '1 s'`)
	f.submit(under(a)) // lease a has expired, but no renewal has removed it yet
	require.Equal(t, 0, f.renew(&b), "the ended lease may have used all its room")
	require.Equal(t, 20, one[int](f, `SELECT active::int FROM headroom`))
	require.ErrorIs(t, errOf(f.store.InsertJob(f.ctx(), f.submission(under(a)))), job.ErrLeaseEnded)
	sub := f.submission(under(a))
	require.ErrorIs(t, errOf(f.store.InsertBatch(f.ctx(), job.BatchSubmission{
		Batch: job.Batch{ID: newID(), ClientID: f.client, Items: []job.BatchItem{}, Language: "en"}, Jobs: []job.Job{sub.Job},
	})), job.ErrLeaseEnded)
	require.ErrorIs(t, errOf(f.store.Retry(job.WithLease(f.ctx(), a.ID), f.client, failed, 1, 0, "")), job.ErrLeaseEnded)
	require.Equal(t, 2, f.count("jobs WHERE finished_at IS NULL"))
	require.ErrorIs(t, errOf(f.store.RenewLease(f.ctx(), a)), job.ErrLeaseEnded, "an ended lease stays ended")
}

// A statement that began under a lease may still store its jobs. The capacity stays reserved until the statement ends.
func TestALeaseInUseDoesNotEnd(t *testing.T) {
	f := setup(t)
	a, b := newLease(func(l *job.Lease) { l.Want = loadOf(10) }), newLease()
	require.Equal(t, 10, f.renew(&a))
	tx := f.begin()
	must(tx.Exec(f.ctx(), `SELECT FROM headroom_leases WHERE lease_id = $1 FOR KEY SHARE`, [16]byte(a.ID)))(t)
	require.Equal(t, 10, f.renew(&a), "a renewal does not wait for statements")
	f.exec(`UPDATE headroom_leases SET expires_at = now() - interval '1 s' WHERE lease_id = $1`, [16]byte(a.ID))
	require.Equal(t, 5, f.renew(&b))
	require.Zero(t, one[int](f, `SELECT active::int FROM headroom`))
	require.NoError(t, tx.Commit(f.ctx()))
	require.Equal(t, 10, f.renew(&b))
	require.Equal(t, 10, one[int](f, `SELECT active::int FROM headroom`))
}

func TestClosedLeasesReturnTheirRoom(t *testing.T) {
	f := setup(t)
	a, b := newLease(), newLease()
	f.renew(&a)
	a.Keep, a.Stored = loadOf(0), loadOf(3)
	require.NoError(t, f.store.CloseLease(f.ctx(), a))
	require.Equal(t, 17, f.renew(&b))
	b.Keep = loadOf(5)
	require.NoError(t, f.store.CloseLease(f.ctx(), b))
	c := newLease()
	require.Equal(t, 6, f.renew(&c), "the lease keeps room for pending jobs")
	ahead := newLease(func(l *job.Lease) { l.Expiry = 24 * time.Hour })
	f.renew(&ahead)
	f.renew(&c)
	require.Equal(t, 2, one[int](f, `SELECT count(*)::int FROM headroom_leases`), "a lease from before a clock step has ended")
}
