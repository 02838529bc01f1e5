package repo_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

// patience bounds every wait of a test. Nothing waits for so long unless it is
// broken.
const patience = 60 * time.Second

// tick is how often a condition without an event of its own is looked at.
const tick = 2 * time.Millisecond

// fixture is a store on a database of its own, a client, a live worker, and a
// way around the store.
type fixture struct {
	t      testing.TB
	url    string
	store  *repo.Store
	db     *pgxpool.Pool
	client job.ID
	worker job.ID

	registry *prometheus.Registry // of the store
	window   time.Duration        // of its idempotency keys
}

func setup(t testing.TB, opts ...func(*repo.Config)) *fixture {
	t.Helper()
	return setupAt(t, repotest.URL(t), opts...)
}

func setupAt(t testing.TB, url string, opts ...func(*repo.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, url: url, client: newID(), registry: prometheus.NewRegistry()}
	observed := func(c *repo.Config) { c.Registry, f.window = f.registry, c.IdempotencyWindow }
	f.store = repotest.OpenURL(t, url, append(opts, observed)...)
	cfg, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	cfg.AfterConnect = repo.ScanUTC
	db, err := pgxpool.NewWithConfig(f.ctx(), cfg)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	f.db = db
	f.worker = f.newWorker()
	return f
}

// ctx bounds one step of the test.
func (f *fixture) ctx() context.Context { return within(f.t, patience) }

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func newID() job.ID { return job.ID(uuid.Must(uuid.NewV7())) }

// newWorker registers a worker whose lease outlasts the test.
func (f *fixture) newWorker() job.ID {
	f.t.Helper()
	id := newID()
	leases := f.store.NewLeases()
	defer leases.Close()
	require.NoError(f.t, leases.Register(f.ctx(), id, "w", 1, time.Hour))
	return id
}

// expireWorker ends a worker's lease on Postgres' clock.
func (f *fixture) expireWorker(id job.ID) {
	f.t.Helper()
	f.exec(`UPDATE workers SET expires_at = clock_timestamp() - interval '1 ms' WHERE worker_id = $1`, id.String())
}

func (f *fixture) exec(sql string, args ...any) {
	f.t.Helper()
	_, err := f.db.Exec(f.ctx(), sql, args...)
	require.NoError(f.t, err)
}

// one reads a single value.
func one[T any](f *fixture, sql string, args ...any) T {
	f.t.Helper()
	rows, err := f.db.Query(f.ctx(), sql, args...)
	require.NoError(f.t, err)
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	require.NoError(f.t, err)
	return v
}

// submission is a plain job of the fixture's client, changed by opts.
func (f *fixture) submission(opts ...func(*job.Submission)) job.Submission {
	s := job.Submission{
		Job: job.Job{
			ID: newID(), ClientID: f.client, Type: job.Execute, WorkKind: job.SuccessFast,
			Definition:  &job.Definition{WorkKind: job.SuccessFast, DurationMS: 1000, PayloadSize: 4096, ExpectedOutcome: "SUCCEEDED", Seed: 42},
			MaxAttempts: 4, Language: "en", RequestID: "r-1",
		},
		RequestHash: sha256.Sum256([]byte("request")),
	}
	for _, opt := range opts {
		opt(&s)
	}
	return s
}

// deferred makes a submission DEFERRED until the given time from now.
func deferred(in time.Duration) func(*job.Submission) {
	return func(s *job.Submission) {
		at := time.Now().Add(in).UTC().Truncate(time.Microsecond)
		s.Job.Type, s.Job.ExecutionAt = job.Deferred, &at
	}
}

func keyed(key string) func(*job.Submission) {
	return func(s *job.Submission) { s.IdempotencyKey = key }
}

func attempts(n int) func(*job.Submission) {
	return func(s *job.Submission) { s.Job.MaxAttempts = n }
}

// submit stores a job and returns its id.
func (f *fixture) submit(opts ...func(*job.Submission)) job.ID {
	f.t.Helper()
	sub := f.submission(opts...)
	_, err := f.store.InsertJob(f.ctx(), sub)
	require.NoError(f.t, err)
	return sub.Job.ID
}

// claim claims attempt n of a job for the fixture's worker and starts it.
func (f *fixture) claim(id job.ID, n int) job.Lease {
	f.t.Helper()
	return f.start(f.assigned(id, n))
}

// assigned claims attempt n of a job for the fixture's worker.
func (f *fixture) assigned(id job.ID, n int) job.Lease {
	f.t.Helper()
	c, _, err := f.store.Claim(f.ctx(), f.worker, id, n)
	require.NoError(f.t, err)
	require.NotNil(f.t, c, "the job is not to be had")
	return c.Lease
}

func (f *fixture) start(l job.Lease) job.Lease {
	f.t.Helper()
	_, err := f.store.Start(f.ctx(), l)
	require.NoError(f.t, err)
	return l
}

// run submits a job and brings it to RUNNING.
func (f *fixture) run(opts ...func(*job.Submission)) job.Lease {
	f.t.Helper()
	return f.claim(f.submit(opts...), 1)
}

func (f *fixture) finish(end job.Finish) job.Finished {
	f.t.Helper()
	done, err := f.store.Finish(f.ctx(), end)
	require.NoError(f.t, err)
	return done
}

// job reads a job of the fixture's client.
func (f *fixture) job(id job.ID) *job.Job {
	f.t.Helper()
	j, err := f.store.Job(f.ctx(), f.client, id)
	require.NoError(f.t, err)
	return j
}

// makeDue lets the time of a DEFERRED job have come a moment ago.
func (f *fixture) makeDue(id job.ID) {
	f.t.Helper()
	f.exec(`UPDATE jobs SET execution_at = clock_timestamp() - interval '1 ms', run_at = clock_timestamp() - interval '1 ms'
		WHERE job_id = $1`, id.String())
}

// backoff is the one that failures in tests advise.
var backoff = job.Backoff{Base: time.Second, Max: time.Minute}

func success(l job.Lease) job.Finish {
	body := []byte("result of " + l.JobID.String())
	return job.Finish{Lease: l, State: job.Succeeded, Result: &job.Result{MediaType: "text/plain", Body: body, SHA256: sha256.Sum256(body)}}
}

func failure(l job.Lease, reason job.Reason) job.Finish {
	return job.Finish{Lease: l, State: job.Failed, Failure: job.NewFailure(reason, l.Attempt, backoff)}
}

func withRetry(end job.Finish, wait time.Duration) job.Finish {
	end.RetryWait = &wait
	return end
}

// event is a row of the event log, as far as tests look at it.
type event struct {
	Seq        int
	Name       string
	Prev, Next string
	Attempt    int
	At         time.Time
	Data       map[string]any
}

// log reads the events of a job in order.
func (f *fixture) log(id job.ID) []event {
	f.t.Helper()
	rows, err := f.db.Query(f.ctx(), `SELECT seq, event_name, coalesce(prev_state, ''), coalesce(next_state, ''), attempt, occurred_at, data
		FROM events WHERE job_id = $1 ORDER BY seq`, id.String())
	require.NoError(f.t, err)
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e event, err error) {
		var data []byte
		if err := row.Scan(&e.Seq, &e.Name, &e.Prev, &e.Next, &e.Attempt, &e.At, &data); err != nil {
			return e, err
		}
		return e, json.Unmarshal(data, &e.Data)
	})
	require.NoError(f.t, err)
	return events
}

// names lists the names of a job's events in order.
func (f *fixture) names(id job.ID) []string {
	f.t.Helper()
	var names []string
	for _, e := range f.log(id) {
		names = append(names, e.Name)
	}
	return names
}

func (f *fixture) state(id job.ID) job.State {
	f.t.Helper()
	return job.State(one[string](f, `SELECT state FROM jobs WHERE job_id = $1`, id.String()))
}

// all shows everything that is stored of a job, to tell whether it changed.
func (f *fixture) all(id job.ID) string {
	f.t.Helper()
	return one[string](f, `SELECT jsonb_pretty(jsonb_build_object(
		'job', (SELECT to_jsonb(j) FROM jobs j WHERE job_id = $1),
		'events', (SELECT jsonb_agg(to_jsonb(e) ORDER BY seq) FROM events e WHERE job_id = $1),
		'reports', (SELECT jsonb_agg(to_jsonb(r) ORDER BY attempt) FROM reports r WHERE job_id = $1),
		'result', (SELECT to_jsonb(r) FROM results r WHERE job_id = $1),
		'keys', (SELECT jsonb_agg(to_jsonb(k)) FROM idempotency_keys k WHERE resource_id = $1),
		'tombstone', (SELECT to_jsonb(t) FROM tombstones t WHERE job_id = $1)))`, id.String())
}

// flushes tells how many statements an operation of the fixture's store has
// used, how many items they carried together, and how long they took.
func (f *fixture) flushes(operation string) (statements, items int, seconds float64) {
	f.t.Helper()
	n, sum := f.metric("group_commit_items", operation)
	_, seconds = f.metric("group_commit_seconds", operation)
	return n, int(sum), seconds
}

// awaitFlushed waits until an operation has carried so many items, and tells in
// how many statements. Items are counted a moment after they are answered.
func (f *fixture) awaitFlushed(operation string, items int) (statements int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		n, done, _ := f.flushes(operation)
		statements = n
		return done == items
	}, patience, tick)
	return statements
}

// storageErrors tells how many failed operations the store has counted.
func (f *fixture) storageErrors() int {
	f.t.Helper()
	_, sum := f.metric("database_errors_total", "")
	return int(sum)
}

// metric adds up a metric of the fixture's store: the observations of a
// histogram and their sum, or the value of a counter; for one operation, or
// with "" for all.
func (f *fixture) metric(name, operation string) (n int, sum float64) {
	f.t.Helper()
	families, err := f.registry.Gather()
	require.NoError(f.t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			if operation != "" && m.GetLabel()[0].GetValue() != operation {
				continue
			}
			n += int(m.GetHistogram().GetSampleCount())
			sum += m.GetHistogram().GetSampleSum() + m.GetCounter().GetValue()
		}
	}
	return n, sum
}

// inParallel calls f for 0 to n-1 at once, and waits.
func inParallel(n int, f func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { f(i) })
	}
	calls.Wait()
}
