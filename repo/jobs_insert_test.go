package repo_test

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestInsertJobStoresAllOfIt(t *testing.T) {
	t.Parallel()
	f := setup(t)
	sub := f.submission(func(s *job.Submission) {
		j := &s.Job
		j.Type, j.AutoRetry = job.EmitEvent, true
		j.Definition.Emit = &job.Emission{Name: "order.shipped", Data: json.RawMessage(`{"n": 1}`)}
		j.Params = json.RawMessage("{ \"b\": 1.50, \"a\": \"x\\u0000y\", \"a\": null }")
		j.Callback, j.CorrelationID = "https://example.org/a?b=c", `'; DROP TABLE jobs; --`
		j.TraceParent, j.Language, j.RequestID = "00-4bf9-00f0-01", "de-CH", "r-\u00e4\u4e16\U0001f600"
	})
	receipt, err := f.store.InsertJob(f.ctx(), sub)
	require.NoError(t, err)
	require.Equal(t, job.Receipt{JobID: sub.Job.ID, State: job.Queued, CreatedAt: receipt.CreatedAt}, receipt)

	want := sub.Job
	want.State, want.Attempt, want.EventSeq = job.Queued, 1, 2
	want.CreatedAt, want.UpdatedAt, want.RunAt = receipt.CreatedAt, receipt.CreatedAt, receipt.CreatedAt
	require.Empty(t, cmp.Diff(&want, f.job(sub.Job.ID)))
	require.WithinDuration(t, time.Now(), receipt.CreatedAt, time.Minute)
}

func TestInsertJobLeavesOutWhatIsAbsent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	require.True(t, one[bool](f, `SELECT num_nulls(params, execution_at, callback, correlation_id, traceparent, batch_id) = 6
		FROM jobs WHERE job_id = $1`, id.String()))
	require.Nil(t, f.job(id).Params)
}

func TestInsertJobWritesEvents(t *testing.T) {
	t.Parallel()
	f := setup(t)
	data := map[string]any{"work_kind": "SUCCESS_FAST", "duration_ms": 1000.0, "expected_outcome": "SUCCEEDED"}

	sub := f.submission()
	now, err := f.store.InsertJob(f.ctx(), sub)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]event{
		{1, job.EventCreated, "", "CREATED", 1, now.CreatedAt, data},
		{2, job.EventQueued, "CREATED", "QUEUED", 1, now.CreatedAt, data},
	}, f.log(sub.Job.ID)))

	sub = f.submission(deferred(time.Hour))
	later, err := f.store.InsertJob(f.ctx(), sub)
	require.NoError(t, err)
	require.Equal(t, job.Created, later.State)
	require.Empty(t, cmp.Diff([]event{{1, job.EventCreated, "", "CREATED", 1, later.CreatedAt, data}}, f.log(sub.Job.ID)))
	stored := f.job(sub.Job.ID)
	require.Equal(t, job.Created, stored.State)
	require.Equal(t, *sub.Job.ExecutionAt, *stored.ExecutionAt)
	require.Equal(t, *sub.Job.ExecutionAt, stored.RunAt)
}

func TestEventIDsAreVersion7(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`CREATE TABLE moments AS SELECT to_timestamp(i * 86400.123) AS at FROM generate_series(1, 20000, 7) i`)
	require.Equal(t, 0, one[int](f, `SELECT count(*)::int FROM (SELECT at, uuid7(at)::text AS id FROM moments) m
		WHERE substr(id, 15, 1) <> '7' OR substr(id, 20, 1) NOT IN ('8', '9', 'a', 'b')
			OR abs(('x' || substr(id, 1, 8) || substr(id, 10, 4))::bit(48)::bigint - extract(epoch FROM at) * 1000) > 0.5`))
	require.Equal(t, 1000, one[int](f, `SELECT count(DISTINCT uuid7(to_timestamp(1)))::int FROM generate_series(1, 1000)`))
}

func TestInsertJobOfDeferredTimeInThePast(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(deferred(-time.Minute)) // it was in the future when it was checked
	require.Equal(t, job.Created, f.state(id))
	require.True(t, one[bool](f, `SELECT run_at = created_at AND execution_at < created_at - interval '50s'
		FROM jobs WHERE job_id = $1`, id.String()),
		"it is due from now on, and stays as it was given")
	n, err := countDue(f.store, f.ctx(), 10)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func TestInsertJobTwiceIsAConflict(t *testing.T) {
	t.Parallel()
	f := setup(t)
	sub := f.submission()
	_, err := f.store.InsertJob(f.ctx(), sub)
	require.NoError(t, err)
	before := f.all(sub.Job.ID)
	_, err = f.store.InsertJob(f.ctx(), sub)
	require.Equal(t, job.CodeConflict, job.CodeOf(err))
	require.Equal(t, before, f.all(sub.Job.ID))
}

// badRows are submissions that Postgres refuses, each for another reason.
func badRows(f *fixture) map[string]job.Submission {
	return map[string]job.Submission{
		"NUL in a text":       f.submission(func(s *job.Submission) { s.Job.Callback = "a\x00b" }),
		"invalid UTF-8":       f.submission(func(s *job.Submission) { s.Job.Language = "\xff" }),
		"NUL in an event":     f.submission(func(s *job.Submission) { s.Job.Definition.Emit = &job.Emission{Data: json.RawMessage(`"\u0000"`)} }),
		"broken params":       f.submission(func(s *job.Submission) { s.Job.Params = json.RawMessage(`{`) }),
		"unknown type":        f.submission(func(s *job.Submission) { s.Job.Type = "DREAM" }),
		"no client":           f.submission(func(s *job.Submission) { s.Job.ClientID = job.ID{} }),
		"no attempts":         f.submission(attempts(0)),
		"EXECUTE with a time": f.submission(deferred(time.Hour), func(s *job.Submission) { s.Job.Type = job.Execute }),
	}
}

func TestInsertJobOneBadRowFailsAlone(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	bad := badRows(f)
	release := f.occupyInserts()

	const good = 50
	var mu sync.Mutex
	refused := map[string]error{}
	var calls sync.WaitGroup
	for name, sub := range bad {
		sub.IdempotencyKey = name
		calls.Go(func() {
			_, err := f.store.InsertJob(f.ctx(), sub)
			mu.Lock()
			defer mu.Unlock()
			refused[name] = err
		})
	}
	errs := make([]error, good)
	for i := range good {
		calls.Go(func() { _, errs[i] = f.store.InsertJob(f.ctx(), f.submission()) })
	}
	f.awaitQueued("insert", good+len(bad))
	release()
	calls.Wait()

	require.NoError(t, errors.Join(errs...))
	require.Len(t, refused, len(bad))
	for name, err := range refused {
		require.Equal(t, job.CodeInternal, job.CodeOf(err), "%s: %v", name, err)
		var e *job.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, "The data could not be stored.", e.Detail, name)
	}
	require.Equal(t, good+2, one[int](f, `SELECT count(*)::int FROM jobs`))
	require.Equal(t, 2*(good+2), one[int](f, `SELECT count(*)::int FROM events`))
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM idempotency_keys`), "a key without its job")
	require.Equal(t, 3, f.awaitFlushed("insert", good+len(bad)+2))
}

// A flush that is held up, by a key that another session is taking, does not keep
// the next one from its commit; what both stored is handed over in the order of
// created_at all the same.
func TestCommitsAreHandedOverInOrder(t *testing.T) {
	t.Parallel()
	f := setup(t, patient)
	f.store.KeepOrder(patience)
	f.submit() // Postgres' time is known from here on
	handed := make(chan job.Receipt, 2)
	committed := func(s *job.Submission) { s.Committed = func(r job.Receipt) { handed <- r } }
	unlock := f.lock(`INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
		VALUES ($1, 'jobs', 'k', $2, $3, now(), now() + interval '1 h')`, f.client, make([]byte, 32), newID().String())
	heldUp := make(chan error, 1)
	go func() {
		_, err := f.store.InsertJob(f.ctx(), f.submission(keyed("k"), committed))
		heldUp <- err
	}()
	f.awaitBlocked(1)
	second, err := f.store.InsertJob(f.ctx(), f.submission(committed))
	require.NoError(t, err)
	require.Empty(t, handed, "the second waits for the first")
	unlock()
	require.NoError(t, <-heldUp)
	first := <-handed
	require.Equal(t, second, <-handed)
	require.True(t, first.CreatedAt.Before(second.CreatedAt))
}
