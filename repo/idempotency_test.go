package repo_test

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestInsertsAreBoundedInBytes(t *testing.T) {
	f := setup(t, patient)
	big, items := json.RawMessage(`"`+strings.Repeat("x", 1<<20)+`"`), 0
	for name, opt := range map[string]func(*job.Submission){ // 4 of these submissions fit into one flush
		"params": func(s *job.Submission) { s.Job.Params = big },
		"event":  func(s *job.Submission) { s.Job.Definition.Emit = &job.Emission{Name: "big", Data: big} },
	} {
		before := f.awaitFlushed("insert", items)
		f.inOneFlush("insert", func() { f.submit() }, 10, func(int) { f.submit(opt) })
		items += 10 + pg.Flushers
		require.Equal(t, 3+pg.Flushers, f.awaitFlushed("insert", items)-before, name)
	}
}

func (f *fixture) expireKeys() { f.exec(`UPDATE idempotency_keys SET expires_at = clock_timestamp()`) }

func (f *fixture) countJobs() int { return f.count("jobs") }

func (f *fixture) twoStores() []*repo.Store {
	return []*repo.Store{f.store, repotest.OpenURL(f.t, f.url)}
}

func TestRepeatedSubmissionReturnsTheFirstReceipt(t *testing.T) {
	f := setup(t)
	first := must(f.store.InsertJob(f.ctx(), f.submission(keyed("k"))))(t)
	require.Equal(t, (24 * time.Hour).Seconds(), one[float64](f,
		`SELECT extract(epoch FROM expires_at - created_at)::float8 FROM idempotency_keys`))
	f.claim(first.JobID, 1) // the job's later state does not change the answer

	again := must(f.store.InsertJob(f.ctx(), f.submission(keyed("k"))))(t)
	want := first
	want.Replayed = true
	require.Equal(t, want, again)
	require.Equal(t, 1, f.countJobs())
	found := must(f.store.FindReceipt(f.ctx(), f.client, "k", f.submission().RequestHash))(t)
	require.Equal(t, &want, found)

	stranger := newID() // the same key of another client is a different key
	require.Nil(t, must(f.store.FindReceipt(f.ctx(), stranger, "k", f.submission().RequestHash))(t))
	f.submit(keyed("k"), func(s *job.Submission) { s.Job.ClientID = stranger })
	require.Equal(t, 2, f.countJobs())
}

// Promise: contract 14f
// Promise: patterns Idempotency
func TestSameKeyOtherRequestIsAConflict(t *testing.T) {
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
	require.Zero(t, f.storageErrors(), "client errors do not count as storage errors")

	f.expireKeys()
	require.Nil(t, must(f.store.FindReceipt(f.ctx(), f.client, "k", other.RequestHash))(t))
	for _, replayed := range []bool{false, true} {
		receipt := must(f.store.InsertJob(f.ctx(), other))(t)
		require.Equal(t, other.Job.ID, receipt.JobID, "an expired key is taken over")
		require.Equal(t, replayed, receipt.Replayed)
	}
	require.Equal(t, 2, f.countJobs())
}

func (f *fixture) requireOneJob(n int) {
	before, stores := f.countJobs(), f.twoStores()
	receipts := make([]job.Receipt, n)
	f.atOnce(n, func(i int) (err error) {
		receipts[i], err = stores[i%2].InsertJob(f.ctx(), f.submission(keyed("k")))
		return err
	})
	made := 0
	for _, r := range receipts {
		require.Equal(f.t, receipts[0].JobID, r.JobID)
		require.Equal(f.t, receipts[0].CreatedAt, r.CreatedAt)
		if !r.Replayed {
			made++
		}
	}
	require.Equal(f.t, 1, made)
	require.Equal(f.t, before+1, f.countJobs())
}

func TestConcurrentSubmissionsWithOneKeyMakeOneJob(t *testing.T) {
	f := setup(t, patient)
	f.requireOneJob(200)
	f.expireKeys()
	f.requireOneJob(200)

	f.expireKeys() // the next submissions are different requests with one key
	stores := f.twoStores()
	errs := make([]error, 40)
	inParallel(len(errs), func(i int) {
		sub := f.submission(keyed("k"))
		sub.RequestHash = sha256.Sum256([]byte{byte(i)})
		_, errs[i] = stores[i%2].InsertJob(f.ctx(), sub)
	})
	accepted := slices.Index(errs, nil)
	require.NotEqual(t, -1, accepted)
	for _, err := range slices.Delete(errs, accepted, accepted+1) {
		require.Equal(t, job.CodeIdempotencyConflict, job.CodeOf(err))
	}
	require.Equal(t, 3, f.countJobs())

	f.expireKeys() // the next submissions share a flush
	f.inOneFlush("insert", func() { f.submit() }, 3, func(int) { f.submit(keyed("k")) })
	require.Equal(t, 3+pg.Flushers+1, f.countJobs())
}
