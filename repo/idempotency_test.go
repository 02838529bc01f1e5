package repo_test

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// expireKeys ends the window of all idempotency keys.
func (f *fixture) expireKeys() {
	f.t.Helper()
	f.exec(`UPDATE idempotency_keys SET expires_at = clock_timestamp()`)
}

func (f *fixture) countJobs() int {
	f.t.Helper()
	return one[int](f, `SELECT count(*)::int FROM jobs`)
}

func TestSameKeySameRequestGetsTheFirstAnswer(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first, err := f.store.InsertJob(f.ctx(), f.submission(keyed("k")))
	require.NoError(t, err)
	f.claim(first.JobID, 1) // what became of the job does not change the answer

	again, err := f.store.InsertJob(f.ctx(), f.submission(keyed("k")))
	require.NoError(t, err)
	want := first
	want.Replayed = true
	require.Equal(t, want, again)
	require.Equal(t, 1, f.countJobs())

	found, err := f.store.FindReceipt(f.ctx(), f.client, "k", f.submission().RequestHash)
	require.NoError(t, err)
	require.Equal(t, &want, found)
}

func TestSameKeyOtherRequestIsAConflict(t *testing.T) {
	t.Parallel()
	f := setup(t)
	first := f.submit(keyed("k"))
	before := f.all(first)
	other := f.submission(keyed("k"))
	other.RequestHash = sha256.Sum256([]byte("another request"))
	_, err := f.store.InsertJob(f.ctx(), other)
	require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err))
	_, err = f.store.FindReceipt(f.ctx(), f.client, "k", other.RequestHash)
	require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err))
	var conflict *job.Error
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, []job.ID{first, {}}, []job.ID{conflict.JobID, conflict.BatchID})
	require.Contains(t, conflict.Detail, first.String())
	require.Equal(t, 1, f.countJobs())
	require.Equal(t, before, f.all(first))
	require.Zero(t, f.storageErrors(), "a client's mistake is no trouble of the database")
}

func TestKeysBelongToTheirClient(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.submit(keyed("k"))
	stranger := newID()
	found, err := f.store.FindReceipt(f.ctx(), stranger, "k", f.submission().RequestHash)
	require.NoError(t, err)
	require.Nil(t, found)
	receipt, err := f.store.InsertJob(f.ctx(), f.submission(keyed("k"), func(s *job.Submission) { s.Job.ClientID = stranger }))
	require.NoError(t, err)
	require.False(t, receipt.Replayed)
	require.Equal(t, 2, f.countJobs())
}

func TestExpiredKeyIsReplaced(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.submit(keyed("k"))
	f.expireKeys()
	other := f.submission(keyed("k"))
	other.RequestHash = sha256.Sum256([]byte("another request"))
	found, err := f.store.FindReceipt(f.ctx(), f.client, "k", other.RequestHash)
	require.NoError(t, err)
	require.Nil(t, found)

	receipt, err := f.store.InsertJob(f.ctx(), other)
	require.NoError(t, err)
	require.Equal(t, other.Job.ID, receipt.JobID)
	require.False(t, receipt.Replayed)
	again, err := f.store.InsertJob(f.ctx(), other)
	require.NoError(t, err)
	require.Equal(t, other.Job.ID, again.JobID)
	require.True(t, again.Replayed)
	require.Equal(t, 2, f.countJobs())
}

func TestKeyHoldsForItsWindow(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.submit(keyed("k"))
	require.Equal(t, f.window.Seconds(), one[float64](f, `SELECT extract(epoch FROM expires_at - created_at)::float8 FROM idempotency_keys`))
}

func TestConcurrentSubmissionsWithOneKeyMakeOneJob(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(f *fixture){
		"new key":     func(*fixture) {},
		"expired key": func(f *fixture) { f.submit(keyed("k")); f.expireKeys() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t)
			prepare(f)
			before := f.countJobs()
			stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)} // as two processes

			const n = 200
			receipts, errs := make([]job.Receipt, n), make([]error, n)
			inParallel(n, func(i int) {
				receipts[i], errs[i] = stores[i%2].InsertJob(f.ctx(), f.submission(keyed("k")))
			})
			made := 0
			for i, r := range receipts {
				require.NoError(t, errs[i])
				require.Equal(t, receipts[0].JobID, r.JobID)
				require.Equal(t, receipts[0].CreatedAt, r.CreatedAt)
				if !r.Replayed {
					made++
				}
			}
			require.Equal(t, 1, made)
			require.Equal(t, before+1, f.countJobs())
		})
	}
}

func TestConcurrentConflictingRequestsWithOneKeyMakeOneJob(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	const n = 40
	errs := make([]error, n)
	inParallel(n, func(i int) {
		sub := f.submission(keyed("k"))
		sub.RequestHash = sha256.Sum256([]byte{byte(i)})
		_, errs[i] = stores[i%2].InsertJob(f.ctx(), sub)
	})
	accepted := 0
	for _, err := range errs {
		if err == nil {
			accepted++
			continue
		}
		require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err))
	}
	require.Equal(t, 1, accepted)
	require.Equal(t, 1, f.countJobs())
}

func TestKeyTwiceInAQueue(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	release := f.occupyInserts()
	receipts := make([]job.Receipt, 3)
	errs := make([]error, 3)
	done := make(chan struct{})
	go func() {
		defer close(done)
		inParallel(3, func(i int) { receipts[i], errs[i] = f.store.InsertJob(f.ctx(), f.submission(keyed("k"))) })
	}()
	f.awaitQueued("insert", 3)
	release()
	<-done
	made := 0
	for i := range receipts {
		require.NoError(t, errs[i])
		require.Equal(t, receipts[0].JobID, receipts[i].JobID)
		if !receipts[i].Replayed {
			made++
		}
	}
	require.Equal(t, 1, made)
}

// Two processes insert the same keys in opposite orders; sorted, they cannot
// deadlock.
func TestKeysInOppositeOrders(t *testing.T) {
	t.Parallel()
	f := setup(t)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url)}
	const keys = 50
	ids := make([][keys]job.ID, len(stores))
	errs := make([]error, len(stores)*keys)
	inParallel(len(errs), func(i int) {
		s, k := i%2, i/2
		key := k
		if s == 1 {
			key = keys - 1 - k
		}
		r, err := stores[s].InsertJob(f.ctx(), f.submission(keyed(string(rune('A'+key)))))
		ids[s][key], errs[i] = r.JobID, err
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.Equal(t, ids[0], ids[1])
	require.Equal(t, keys, f.countJobs())
}
