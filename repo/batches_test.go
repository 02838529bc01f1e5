package repo_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/jobs"
	"github.com/forgerun/forgerun/repo/pg"
)

func (f *fixture) batch(n int, opts ...func(*job.BatchSubmission)) job.BatchSubmission {
	sub := job.BatchSubmission{
		Batch:       job.Batch{ID: newID(), ClientID: f.client, CorrelationID: "c", Language: "de", RequestID: "r-1"},
		RequestHash: sha256.Sum256([]byte("batch")),
	}
	for i := range n {
		j := f.submission().Job
		j.BatchID = sub.Batch.ID
		sub.Jobs = append(sub.Jobs, j)
		sub.Batch.Items = append(sub.Batch.Items, job.BatchItem{ItemID: fmt.Sprint("item-", i), JobID: j.ID})
	}
	for _, opt := range opts {
		opt(&sub)
	}
	return sub
}

func batchKeyed(key string) func(*job.BatchSubmission) {
	return func(s *job.BatchSubmission) { s.IdempotencyKey = key }
}

func refusing(n int) func(*job.BatchSubmission) {
	return func(s *job.BatchSubmission) {
		for i := range n {
			s.Batch.Items = slices.Insert(s.Batch.Items, i, job.BatchItem{ItemID: fmt.Sprint("refused-", i), Refusal: &job.Refusal{
				Code: job.CodeValidationFailed, Detail: "The request has invalid values.",
				Violations: []job.Violation{{Pointer: fmt.Sprintf("/jobs/%d/type", i), Detail: "No such type."}},
			}})
		}
	}
}

func (f *fixture) insertBatch(sub job.BatchSubmission) *job.Batch {
	b, replayed := must2(f.store.InsertBatch(f.ctx(), sub))(f.t)
	require.False(f.t, replayed)
	return b
}

func (f *fixture) readBatch(id job.ID) *job.Batch {
	return must(f.store.Batch(f.ctx(), f.client, id))(f.t)
}

func jobsOf(b *job.Batch) (ids []job.ID) {
	for _, item := range b.Items {
		if item.Refusal == nil {
			ids = append(ids, item.JobID)
		}
	}
	return ids
}

func TestInsertBatch(t *testing.T) {
	f := setup(t)
	sub := f.batch(3, refusing(1), func(s *job.BatchSubmission) {
		later := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
		s.Jobs[1].Type, s.Jobs[1].ExecutionAt = job.Deferred, &later
	})
	b := f.insertBatch(sub)

	want := sub.Batch
	want.CreatedAt, want.Counts = b.CreatedAt, map[job.State]int{job.Queued: 2, job.Created: 1}
	states := []job.State{"", job.Queued, job.Created, job.Queued}
	for i, item := range sub.Batch.Items {
		require.Empty(t, item.State, "the caller's items are not changed")
		item.State = states[i]
		want.Items[i] = item
	}
	require.Equal(t, &want, b)
	require.Equal(t, b, f.readBatch(b.ID))
	require.WithinDuration(t, time.Now(), b.CreatedAt, testkit.Patience)
	require.Equal(t, time.UTC, b.CreatedAt.Location())
	require.Equal(t, 1, one[int](f, `SELECT refused FROM batches`))
	require.Equal(t, 3, f.countJobs())
	for i, id := range jobsOf(b) {
		j := f.job(id)
		require.Equal(t, []any{b.ID, states[i+1]}, []any{j.BatchID, j.State})
		require.False(t, j.CreatedAt.Before(b.CreatedAt))
	}
	f.checkInvariants()
}

// Deliveries are written in the transaction of their events. Even for the largest batch with the maximum number of webhooks, this takes
// less than the statement timeout.
// Promise: patterns Batch
func TestLargestBatch(t *testing.T) {
	f := setup(t)
	for range job.MaxWebhooks {
		f.subscribe("*")
	}
	b := f.insertBatch(f.batch(job.MaxBatchItems))
	require.Equal(t, map[job.State]int{job.Queued: job.MaxBatchItems}, f.readBatch(b.ID).Counts)
	require.ElementsMatch(t, jobsOf(b), must(f.store.OpenJobs(f.ctx(), f.client, b.ID))(t))
	require.Equal(t, job.MaxBatchItems*job.MaxWebhooks*2, f.count("deliveries"), "job.created and job.queued")
}

func TestBatchFollowsItsJobs(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(4))
	ids := jobsOf(b)
	f.finish(success(f.claim(ids[0], 1)))
	f.claim(ids[1], 1)
	f.cancel(ids[2])
	f.retry(ids[0], 1) // changes nothing
	got := f.readBatch(b.ID)
	require.Equal(t, map[job.State]int{job.Succeeded: 1, job.Running: 1, job.Canceled: 1, job.Queued: 1}, got.Counts)
	require.Equal(t, b.Items, got.Items, "items keep their states from the acceptance")
	require.ElementsMatch(t, []job.ID{ids[1], ids[3]}, must(f.store.OpenJobs(f.ctx(), f.client, b.ID))(t))
}

func (f *fixture) find(client job.ID, sub job.BatchSubmission) (*job.Batch, error) {
	return f.store.FindBatch(f.ctx(), client, "k", sub.RequestHash)
}

func (f *fixture) otherBatch(n int) job.BatchSubmission {
	other := f.batch(n, batchKeyed("k"))
	other.RequestHash = sha256.Sum256([]byte("another request"))
	return other
}

func TestBatchKeys(t *testing.T) {
	f := setup(t)
	f.submit(keyed("k")) // jobs and batches have separate keys
	stranger, same := newID(), f.batch(2, batchKeyed("k"))
	require.Nil(t, must(f.find(f.client, same))(t))
	first := f.insertBatch(f.batch(2, batchKeyed("k")))
	require.Equal(t, (24 * time.Hour).Seconds(), one[float64](f, `SELECT extract(epoch FROM expires_at - created_at)::float8
		FROM idempotency_keys WHERE state IS NULL`))

	again, replayed := must2(f.store.InsertBatch(f.ctx(), same))(t)
	require.True(t, replayed)
	require.Equal(t, first, again)
	require.Equal(t, first, must(f.find(f.client, same))(t))

	require.Nil(t, must(f.find(stranger, same))(t), "keys belong to their client")
	require.Empty(t, must(f.store.OpenJobs(f.ctx(), stranger, first.ID))(t))
	other := f.otherBatch(2)
	require.Equal(t, job.CodeIdempotencyConflict, codeOf(f.store.InsertBatch(f.ctx(), other)))
	var conflict *job.Error
	require.ErrorAs(t, errOf(f.find(f.client, other)), &conflict)
	require.Equal(t, []any{job.CodeIdempotencyConflict, job.ID{}, first.ID}, []any{conflict.Code, conflict.JobID, conflict.BatchID})
	require.Equal(t, 3, f.countJobs())

	f.expireKeys()
	require.Equal(t, other.Batch.ID, f.insertBatch(other).ID, "an expired key is taken over")
	require.Equal(t, 5, f.countJobs())
	require.Zero(t, f.storageErrors(), "client errors do not count as storage errors")
	f.checkInvariants()
}

func TestConcurrentBatchesWithOneKeyMakeOneBatch(t *testing.T) {
	f := setup(t)
	stores := f.twoStores() // like two processes
	const n, size = 10, 50
	for _, which := range []string{"new", "expired"} {
		before := f.countJobs()
		batches := make([]*job.Batch, n)
		var made atomic.Int32
		f.atOnce(n, func(i int) error {
			b, replayed, err := stores[i%2].InsertBatch(f.ctx(), f.batch(size, batchKeyed("k")))
			if batches[i] = b; !replayed {
				made.Add(1)
			}
			return err
		})
		for _, b := range batches {
			require.Equal(t, batches[0], b)
		}
		require.EqualValues(t, 1, made.Load(), which)
		require.Equal(t, before+size, f.countJobs(), which)
		f.expireKeys()
	}
	f.checkInvariants()
}

func TestWaitingBatchesDoNotStarveOthers(t *testing.T) {
	t.Parallel()
	const n = 40
	for name, test := range map[string]struct {
		opts          []func(*job.BatchSubmission)
		blocked, made int // expected numbers of blocked sessions and of created batches
	}{
		"with one key": {[]func(*job.BatchSubmission){batchKeyed("k")}, 1, 1},
		"without keys": {nil, jobs.MaxBatchInserts, n},
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, patient)
			unlock := f.lock(`LOCK TABLE batches IN SHARE MODE`)
			var calls []<-chan error
			for range n {
				calls = append(calls, begin(func() error { return errOf(f.store.InsertBatch(f.ctx(), f.batch(2, test.opts...))) }))
			}
			f.awaitBlocked(test.blocked)
			for range 20 { // the other waiting batches hold no connection, so submissions succeed
				must(f.store.InsertJob(within(t, testkit.Patience/6), f.submission()))(t)
				require.LessOrEqual(t, int(f.store.Pool().Stat().AcquiredConns()), test.blocked+pg.Flushers)
			}
			hasty, cancel := context.WithCancel(f.ctx())
			cancel()
			requireTrouble(t, errOf(f.store.InsertBatch(hasty, f.batch(2, test.opts...))), job.CodeDBError)
			unlock()
			for _, inserted := range calls {
				require.NoError(t, <-inserted)
			}
			require.Equal(t, test.made, f.count("batches"))
			require.Zero(t, f.store.BatchKeysTaken())
			f.checkInvariants()
		})
	}
}

func TestBatchKeyOutlivesItsBatch(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(1, batchKeyed("k"), refusing(1)))
	f.end(jobsOf(b)[0], job.Canceled, "")
	f.completeBatches(b.ID)
	f.exec(`DELETE FROM batches`)
	again, other := f.batch(1, batchKeyed("k")), f.otherBatch(1)
	require.Equal(t, job.CodeJobGone, codeOf(f.find(f.client, again)))
	require.Equal(t, job.CodeJobGone, codeOf(f.store.InsertBatch(f.ctx(), again)), "the jobs are not done again")
	require.Equal(t, job.CodeIdempotencyConflict, codeOf(f.store.InsertBatch(f.ctx(), other)))
	f.expireKeys()
	f.insertBatch(other)
}

func (f *fixture) insertAndKill(sub job.BatchSubmission) error {
	inserted := begin(func() error { return errOf(f.store.InsertBatch(f.ctx(), sub)) })
	f.awaitBlocked(1)
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	return <-inserted
}

// Promise: contract 14c
func TestBrokenBatchLeavesNothing(t *testing.T) {
	f := setup(t, patient)
	requireNothing := func() {
		for _, table := range []string{"jobs", "events", "batches", "idempotency_keys"} {
			require.Zero(t, f.count(table), table)
		}
	}
	sub := f.batch(3, batchKeyed("k"))
	sub.Jobs[2].MaxAttempts = 0
	require.Equal(t, job.CodeInternal, codeOf(f.store.InsertBatch(f.ctx(), sub)))
	requireNothing()

	sub = f.batch(3, batchKeyed("k"))
	for _, table := range []string{"jobs", "batches"} {
		unlock := f.lock(`LOCK TABLE ` + table + ` IN SHARE MODE`)
		err := f.insertAndKill(sub)
		requireTrouble(t, err, job.CodeStorageUnavailable)
		require.NotContains(t, err.Error(), "unknown")
		unlock()
		requireNothing()
	}
	f.insertBatch(sub)
}

// The connection is lost while the commit waits in a deferred trigger.
func TestBatchConnectionLostInTheCommit(t *testing.T) {
	f := setup(t, patient)
	f.exec(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END'`)
	f.exec(`CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON batches DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()`)
	unlock := f.lock(`SELECT pg_advisory_xact_lock(1)`)
	sub := f.batch(3, batchKeyed("k"))
	err := f.insertAndKill(sub)
	requireTrouble(t, err, job.CodeStorageUnavailable)
	require.ErrorContains(t, err, "outcome of the write is unknown")
	unlock()
	f.insertBatch(sub)

	f.exec(`CREATE OR REPLACE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE check_violation; END'`)
	require.Equal(t, job.CodeInternal, codeOf(f.store.InsertBatch(f.ctx(), f.batch(1))), "the server refused the commit")
}
