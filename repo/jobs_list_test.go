package repo_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// list reads all pages, and tells how many there were.
func (f *fixture) list(q job.Query) (ids []job.ID, pages int) {
	f.t.Helper()
	for {
		page, err := f.store.Jobs(f.ctx(), f.client, q)
		require.NoError(f.t, err)
		require.LessOrEqual(f.t, len(page.Jobs), q.Limit)
		pages++
		for _, j := range page.Jobs {
			ids = append(ids, j.ID)
		}
		if page.Next.IsZero() {
			return ids, pages
		}
		q.After = page.Next
	}
}

func reversed(ids []job.ID) []job.ID {
	out := make([]job.ID, 0, len(ids))
	for i := range ids {
		out = append(out, ids[len(ids)-1-i])
	}
	return out
}

func TestListPages(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var ids []job.ID
	for range 6 {
		ids = append(ids, f.submit())
		f.submit(func(s *job.Submission) { s.Job.ClientID = newID() })
	}
	for _, test := range []struct{ limit, pages int }{{1, 6}, {2, 3}, {4, 2}, {5, 2}, {6, 1}, {7, 1}} {
		got, pages := f.list(job.Query{Limit: test.limit})
		require.Equal(t, reversed(ids), got)
		require.Equal(t, test.pages, pages, "limit %d: the end is known without one more page", test.limit)
	}
}

func TestListShowsJobsWithoutWhatTheClientSent(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit(func(s *job.Submission) { s.Job.Params, s.Job.CorrelationID = []byte(`{"a": 1}`), "c" })
	f.finish(failure(f.claim(id, 1), job.FailedOnce))
	page, err := f.store.Jobs(f.ctx(), f.client, job.Query{Limit: 10})
	require.NoError(t, err)
	want := f.job(id)
	require.NotEmpty(t, want.Params)
	want.Params, want.Definition = nil, nil
	require.Equal(t, []*job.Job{want}, page.Jobs)
}

func TestListFilters(t *testing.T) {
	t.Parallel()
	f := setup(t)
	queued, canceled := f.at(job.Queued), f.at(job.Canceled)
	later := f.submit(deferred(time.Hour), func(s *job.Submission) { s.Job.CorrelationID = "Order.17" })
	failing := f.submit(func(s *job.Submission) { s.Job.WorkKind = job.FailImmediate })
	f.submit(func(s *job.Submission) { s.Job.ClientID, s.Job.CorrelationID = newID(), "Order.17" })
	all := []job.ID{failing, later, canceled, queued}
	at := func(id job.ID, by time.Duration) *time.Time {
		moment := f.job(id).CreatedAt.Add(by)
		return &moment
	}
	for name, test := range map[string]struct {
		query job.Query
		want  []job.ID
	}{
		"nothing":            {job.Query{}, all},
		"state":              {job.Query{State: job.Canceled}, []job.ID{canceled}},
		"type":               {job.Query{Type: job.Deferred}, []job.ID{later}},
		"work kind":          {job.Query{WorkKind: job.FailImmediate}, []job.ID{failing}},
		"correlation id":     {job.Query{CorrelationID: "Order.17"}, []job.ID{later}},
		"only the whole id":  {job.Query{CorrelationID: "order.17"}, nil},
		"two of them":        {job.Query{State: job.Queued, Type: job.Execute}, []job.ID{failing, queued}},
		"two that exclude":   {job.Query{State: job.Canceled, Type: job.Deferred}, nil},
		"after, inclusive":   {job.Query{CreatedAfter: at(later, 0)}, []job.ID{failing, later}},
		"just after":         {job.Query{CreatedAfter: at(later, time.Microsecond)}, []job.ID{failing}},
		"before, exclusive":  {job.Query{CreatedBefore: at(canceled, 0)}, []job.ID{queued}},
		"just before":        {job.Query{CreatedBefore: at(canceled, time.Microsecond)}, []job.ID{canceled, queued}},
		"between":            {job.Query{CreatedAfter: at(canceled, 0), CreatedBefore: at(failing, 0)}, []job.ID{later, canceled}},
		"an empty time":      {job.Query{CreatedAfter: at(failing, 0), CreatedBefore: at(queued, 0)}, nil},
		"long ago":           {job.Query{CreatedBefore: at(queued, -200*365*24*time.Hour)}, nil},
		"in the far future":  {job.Query{CreatedAfter: at(queued, 200*365*24*time.Hour)}, nil},
		"since long ago":     {job.Query{CreatedAfter: at(queued, -200*365*24*time.Hour)}, all},
		"a place and a time": {job.Query{After: later, CreatedBefore: at(failing, time.Hour)}, []job.ID{canceled, queued}},
	} {
		test.query.Limit = 3
		got, _ := f.list(test.query)
		require.Equal(t, test.want, got, name)
	}
}

// The id has the time of the process that made it, created_at that of Postgres.
func TestListByTimeAllowsForSkewedClocks(t *testing.T) {
	t.Parallel()
	f := setup(t)
	id := f.submit()
	created := f.job(id).CreatedAt
	for _, skew := range []time.Duration{-4 * time.Minute, 4 * time.Minute} {
		f.exec(`UPDATE jobs SET job_id = uuid7($1)`, created.Add(skew))
		for name, q := range map[string]job.Query{
			"from": {CreatedAfter: &created}, "until": {CreatedBefore: new(created.Add(time.Microsecond))},
		} {
			q.Limit = 1
			got, _ := f.list(q)
			require.Len(t, got, 1, "%s, id off by %s", name, skew)
		}
	}
}

// Whatever happens between two pages: every job that was there at the start is
// listed exactly once.
func TestListIsStable(t *testing.T) {
	t.Parallel()
	f := setup(t)
	const n = 30
	ids := make([]job.ID, n)
	for i := range ids {
		ids[i] = f.submit()
	}
	var got []job.ID
	q := job.Query{Limit: 4}
	for done := false; !done; {
		page, err := f.store.Jobs(f.ctx(), f.client, q)
		require.NoError(t, err)
		for _, j := range page.Jobs {
			got = append(got, j.ID)
		}
		done, q.After = page.Next.IsZero(), page.Next

		inParallel(2, func(i int) { // one of them at the place where the list goes on
			f.submit()
			for _, id := range []job.ID{got[len(got)-1-i], ids[max(0, n-len(got)-1-i)]} {
				if _, _, err := f.store.Cancel(f.ctx(), f.client, id); err != nil {
					t.Error(err)
				}
			}
		})
		require.NoError(t, f.store.Delete(f.ctx(), f.client, got[len(got)-1]))
	}
	require.Equal(t, reversed(ids), got)
}

func TestListOfABatch(t *testing.T) {
	t.Parallel()
	f := setup(t)
	b := f.insertBatch(f.batch(5))
	f.submit()
	f.insertBatch(f.batch(2))
	got, _ := f.list(job.Query{BatchID: b.ID, Limit: 2})
	require.ElementsMatch(t, jobsOf(b), got)
	got, _ = f.list(job.Query{BatchID: b.ID, State: job.Canceled, Limit: 2})
	require.Empty(t, got)

	for _, id := range []job.ID{b.ID, newID()} { // a foreign one, an unknown one
		page, err := f.store.Jobs(f.ctx(), newID(), job.Query{BatchID: id, Limit: 10})
		require.NoError(t, err)
		require.Zero(t, page)
	}
}

const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// hundredThousand makes 100,000 jobs of $1 among others; the newest 200 are a batch.
const hundredThousand = `
INSERT INTO jobs (job_id, client_id, batch_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq,
  created_at, updated_at, run_at, queued_at, started_at, finished_at, language, request_id)
SELECT uuid7(at), CASE WHEN i % 3 = 0 THEN md5((i % 60)::text)::uuid ELSE $1::uuid END, CASE WHEN i <= 300 AND i % 3 > 0 THEN $2::uuid END,
  'EXECUTE', 'SUCCESS_FAST', '{}', 'SUCCEEDED', 'SUCCESS', 4, false, 5, at, at, at, at, at, at, 'en', 'r'
FROM (SELECT i, now() - i * interval '1 s' AS at FROM generate_series(1, 150000) i) AS n`

func TestListOfAHundredThousandJobs(t *testing.T) {
	t.Parallel()
	f := setup(t)
	b := f.insertBatch(f.batch(1))
	const nowhere = `, NULL, NULL, '` + lastID + `', '` + nobody + `', `
	own := `'` + f.client.String() + `'`
	require.Equal(t, 1, rowsRead(t, f, repo.Statements["listByClient"], own+nowhere+`NULL, NULL, NULL, NULL, NULL, NULL, 51`),
		"a plan that is made while there is little is good for more")
	f.exec(hundredThousand, f.client.String(), b.ID.String())
	f.exec(`ANALYZE jobs`)

	require.LessOrEqual(t, rowsRead(t, f, repo.Statements["listByClient"], own+nowhere+`NULL, NULL, NULL, NULL, NULL, NULL, 51`), 52,
		"the jobs of the page, and a look ahead")
	require.Equal(t, 20_000, rowsRead(t, f, repo.Statements["listByClient"], own+nowhere+`'FAILED', NULL, NULL, NULL, NULL, NULL, 51`),
		"a filter that wants nothing does not read everything")
	few := `'` + one[string](f, `SELECT md5('3')`) + `'`
	require.Equal(t, 2500, rowsRead(t, f, repo.Statements["listByClient"], few+nowhere+`'FAILED', NULL, NULL, NULL, NULL, NULL, 51`),
		"other clients' jobs are not passed")
	batch := `, '` + b.ID.String() + `', NULL, '` + lastID + `', '` + nobody + `', 'FAILED', NULL, NULL, NULL, NULL, NULL, 51`
	require.Equal(t, 201, rowsRead(t, f, repo.Statements["listByBatch"], own+batch))
	require.Zero(t, rowsRead(t, f, repo.Statements["listByBatch"], few+batch), "nobody else's batch is looked through")

	oldest := job.ID(one[[16]byte](f, `SELECT job_id FROM jobs WHERE client_id = $1 ORDER BY job_id LIMIT 1`, f.client.String()))
	_, _, err := f.store.Cancel(f.ctx(), f.client, b.Items[0].JobID)
	require.NoError(t, err)
	f.exec(`UPDATE jobs SET work_kind = 'FAIL_IMMEDIATE', correlation_id = 'c' WHERE job_id = $1`, oldest.String())
	got, pages := f.list(job.Query{WorkKind: job.FailImmediate, Limit: 50})
	require.Equal(t, []job.ID{oldest}, got)
	require.Equal(t, 6, pages, "100,001 jobs, 20,000 a page")
	got, pages = f.list(job.Query{CorrelationID: "c", Limit: 50})
	require.Equal(t, []job.ID{oldest}, got)
	require.Equal(t, 6, pages, "there is no index of it")
	day := one[time.Time](f, `SELECT now() - interval '1 day'`)
	require.Less(t, rowsRead(t, f, repo.Statements["listByClient"], own+`, NULL, NULL, '`+lastID+`', '`+
		one[string](f, `SELECT uuid7($1)::text`, day.Add(23*time.Hour))+`', 'FAILED', NULL, NULL, NULL, NULL, NULL, 51`), 3000,
		"times bound the ids")
}

// rowsRead counts the rows of jobs that a statement reads, and requires that
// it finds them by an index, in their order.
func rowsRead(t *testing.T, f *fixture, statement, args string) int {
	t.Helper()
	conn, err := f.store.Pool().Acquire(f.ctx())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(f.ctx(), `BEGIN`)
	require.NoError(t, err)
	var read int
	for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
		explain(t, f, conn, mode, statement, args).walk(func(node plan) {
			require.NotContains(t, []string{"Seq Scan", "Sort", "Incremental Sort"}, node.NodeType)
			if node.Relation == "jobs" {
				require.Contains(t, []string{"jobs_client", "jobs_batch"}, node.Index)
				require.Contains(t, node.Cond, "ROW(")
			}
		})
		before := jobsRead(f, conn)
		_, err = conn.Conn().PgConn().Exec(f.ctx(), `PREPARE p AS `+statement+`; EXECUTE p(`+args+`); DEALLOCATE p`).ReadAll()
		require.NoError(t, err)
		read = jobsRead(f, conn) - before
	}
	_, err = conn.Exec(f.ctx(), `ROLLBACK`)
	require.NoError(t, err)
	return read
}

// jobsRead counts the rows of jobs that a session has read.
func jobsRead(f *fixture, conn *pgxpool.Conn) (n int) {
	f.t.Helper()
	require.NoError(f.t, conn.QueryRow(f.ctx(), `SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_xact_user_tables
		WHERE relname = 'jobs'`).Scan(&n))
	return n
}
