package repo_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

// fixture is a store on a new database, a client, a live worker, and direct access to the database. Its methods do not call Helper, because
// testify shows all calls that led to a failure.
type fixture struct {
	t      testing.TB
	url    string
	store  *repo.Store
	db     *pgxpool.Pool
	client job.ID
	worker job.ID

	registry *prometheus.Registry
}

func setup(t *testing.T, opts ...func(*repo.Config)) *fixture {
	t.Parallel()
	return setupAt(t, repotest.URL(t), opts...)
}

func setupAt(t testing.TB, url string, opts ...func(*repo.Config)) *fixture {
	f := &fixture{t: t, url: url, client: newID(), registry: prometheus.NewRegistry()}
	observed := func(c *repo.Config) { c.Registry = f.registry }
	f.store = repotest.OpenURL(t, url, append(opts, observed)...)
	cfg := must(pgxpool.ParseConfig(url))(t)
	cfg.AfterConnect = pg.ScanUTC
	db := must(pgxpool.NewWithConfig(f.ctx(), cfg))(t)
	t.Cleanup(db.Close)
	f.db = db
	f.worker = f.newWorker()
	return f
}

func (f *fixture) ctx() context.Context { return within(f.t, testkit.Patience) }

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// must returns the value of a call that must not fail: must(call())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		require.NoError(t, err)
		return value
	}
}

func must2[A, B any](a A, b B, err error) func(testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		require.NoError(t, err)
		return a, b
	}
}

func errOf(results ...any) error {
	err, _ := results[len(results)-1].(error)
	return err
}

func codeOf(results ...any) job.Code {
	if errOf(results...) == nil {
		return ""
	}
	return job.CodeOf(errOf(results...))
}

func newID() job.ID { return job.ID(uuid.Must(uuid.NewV7())) }

func (f *fixture) newWorker() job.ID {
	id := newID()
	leases := f.store.NewLeases()
	defer leases.Close()
	require.NoError(f.t, leases.Register(f.ctx(), id, "w", 1, time.Hour))
	return id
}

func (f *fixture) expireWorker(id job.ID) {
	f.exec(`UPDATE workers SET expires_at = clock_timestamp() - interval '1 ms' WHERE worker_id = $1`, id.String())
}

func (f *fixture) exec(sql string, args ...any) { must(f.db.Exec(f.ctx(), sql, args...))(f.t) }

// script runs each statement in its own transaction. A long transaction would hold up the feeds of all tests on the server.
func (f *fixture) script(sql string) {
	conn := must(f.db.Acquire(f.ctx()))(f.t)
	defer conn.Release()
	for statement := range strings.SplitAfterSeq(sql, ";\n") {
		must(conn.Conn().PgConn().Exec(f.ctx(), statement).ReadAll())(f.t)
	}
}

func one[T any](f *fixture, sql string, args ...any) T {
	rows := must(f.db.Query(f.ctx(), sql, args...))(f.t)
	return must(pgx.CollectExactlyOneRow(rows, pgx.RowTo[T]))(f.t)
}

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

func deferred(in time.Duration) func(*job.Submission) {
	return func(s *job.Submission) {
		at := time.Now().Add(in).UTC().Truncate(time.Microsecond)
		s.Job.Type, s.Job.ExecutionAt = job.Deferred, &at
	}
}

func keyed(key string) func(*job.Submission) {
	return func(s *job.Submission) { s.IdempotencyKey = key }
}

func attempts(n int) func(*job.Submission) { return func(s *job.Submission) { s.Job.MaxAttempts = n } }

func (f *fixture) submit(opts ...func(*job.Submission)) job.ID {
	sub := f.submission(opts...)
	must(f.store.InsertJob(f.ctx(), sub))(f.t)
	return sub.Job.ID
}

func (f *fixture) submitted(n int, opts ...func(*job.Submission)) (ids []job.ID) {
	for range n {
		ids = append(ids, f.submit(opts...))
	}
	return ids
}

func ofClient(id job.ID) func(*job.Submission) {
	return func(s *job.Submission) { s.Job.ClientID = id }
}

func (f *fixture) claim(id job.ID, n int) job.ClaimID { return f.start(f.assigned(id, n)) }

func (f *fixture) assigned(id job.ID, n int) job.ClaimID {
	c, _ := f.tryClaim(id, n)
	require.NotNil(f.t, c, "the job was not claimed")
	return c.ClaimID
}

func (f *fixture) start(c job.ClaimID) job.ClaimID {
	must(f.store.Start(f.ctx(), c))(f.t)
	return c
}

func (f *fixture) run(opts ...func(*job.Submission)) job.ClaimID {
	return f.claim(f.submit(opts...), 1)
}

func (f *fixture) finish(end job.Finish) job.Finished { return must(f.store.Finish(f.ctx(), end))(f.t) }

func (f *fixture) tryClaim(id job.ID, n int) (*job.Claim, job.NotClaimed) {
	return must2(f.store.Claim(f.ctx(), f.worker, id, n))(f.t)
}

func (f *fixture) release(leases ...job.ClaimID) []job.Task {
	return must(f.store.Release(f.ctx(), leases, make([]time.Duration, len(leases))))(f.t)
}

func (f *fixture) queueDue(limit int) []job.Job { return must(f.store.QueueDue(f.ctx(), limit))(f.t) }

func (f *fixture) cancel(id job.ID) { must2(f.store.Cancel(f.ctx(), f.client, id))(f.t) }

func (f *fixture) failed(reason job.Reason, opts ...func(*job.Submission)) job.ID {
	l := f.run(opts...)
	f.finish(failure(l, reason))
	return l.JobID
}

func (f *fixture) retrying(wait time.Duration, opts ...func(*job.Submission)) job.ClaimID {
	l := f.run(opts...)
	f.finish(withRetry(failure(l, job.FailedOnce), wait))
	return l
}

func (f *fixture) retry(id job.ID, n int) job.Change {
	return must(f.store.Retry(f.ctx(), f.client, id, n, 0, ""))(f.t)
}

func (f *fixture) report(id job.ID, attempt int) *job.Report {
	return must(f.store.Report(f.ctx(), f.client, id, attempt))(f.t)
}

func (f *fixture) orphans(limit int) []job.Held { return must(f.store.Orphans(f.ctx(), limit))(f.t) }

func (f *fixture) testWebhook(hook job.ID) { must(f.store.TestWebhook(f.ctx(), f.client, hook))(f.t) }

func (f *fixture) job(id job.ID) *job.Job { return must(f.store.Job(f.ctx(), f.client, id))(f.t) }

func (f *fixture) makeDue(id job.ID) {
	f.exec(`UPDATE jobs SET execution_at = clock_timestamp() - interval '1 ms', run_at = clock_timestamp() - interval '1 ms'
		WHERE job_id = $1`, id.String())
}

var backoff = job.Backoff{Base: time.Second, Max: time.Minute}

func success(c job.ClaimID) job.Finish {
	body := []byte("result of " + c.JobID.String())
	return job.Finish{ClaimID: c, State: job.Succeeded, Result: &job.Result{MediaType: "text/plain", Body: body, SHA256: sha256.Sum256(body)}}
}

func failure(c job.ClaimID, reason job.Reason) job.Finish {
	return job.Finish{ClaimID: c, State: job.Failed, Failure: job.NewFailure(reason, c.Attempt, backoff)}
}

func withRetry(end job.Finish, wait time.Duration) job.Finish {
	end.RetryWait = &wait
	return end
}

func (f *fixture) flushes(operation string) (statements, items int, seconds float64) {
	n, sum := f.metric("group_commit_items", operation)
	_, seconds = f.metric("group_commit_seconds", operation)
	return n, int(sum), seconds
}

// awaitFlushed waits, because an item is counted shortly after its caller has the result.
func (f *fixture) awaitFlushed(operation string, items int) (statements int) {
	testkit.Eventually(f.t, "the items are flushed", func() bool {
		n, done, _ := f.flushes(operation)
		statements = n
		return done == items
	})
	return statements
}

func (f *fixture) storageErrors() int {
	_, sum := f.metric("database_errors_total", "")
	return int(sum)
}

// metric returns the count and the sum of a histogram. For a counter, it returns 0 and the counter's value. An empty operation means all
// operations.
func (f *fixture) metric(name, operation string) (n int, sum float64) {
	for _, family := range must(f.registry.Gather())(f.t) {
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

func begin(do func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	return done
}

func (f *fixture) atOnce(n int, do func(i int) error) {
	errs := make([]error, n)
	inParallel(n, func(i int) { errs[i] = do(i) })
	require.NoError(f.t, errors.Join(errs...))
}

func walk[T any, At comparable](f *fixture, read func(at At) (page []T, next At)) (all []T, pages int) {
	var at, none At
	for {
		page, next := read(at)
		all, at = append(all, page...), next
		if pages++; next == none {
			return all, pages
		}
		require.Less(f.t, pages, 1000, "too many pages")
	}
}

func inParallel(n int, f func(i int)) {
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { f(i) })
	}
	calls.Wait()
}
