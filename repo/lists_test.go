package repo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func (f *fixture) list(q job.Query) (ids []job.ID, pages int) {
	return walk(f, func(after job.ID) ([]job.ID, job.ID) {
		if !after.IsZero() {
			q.After = after
		}
		page := must(f.store.Jobs(f.ctx(), f.client, q))(f.t)
		require.LessOrEqual(f.t, len(page.Jobs), q.Limit)
		return each(page.Jobs, func(j *job.Job) job.ID { return j.ID }), page.Next
	})
}

func reversed(ids []job.ID) []job.ID {
	ids = slices.Clone(ids)
	slices.Reverse(ids)
	return ids
}

func TestListPages(t *testing.T) {
	f := setup(t)
	var ids []job.ID
	for range 6 {
		ids = append(ids, f.submit())
		f.another()
	}
	for limit, want := range map[int]int{1: 6, 2: 3, 4: 2, 5: 2, 6: 1, 7: 1} {
		got, pages := f.list(job.Query{Limit: limit})
		require.Equal(t, reversed(ids), got)
		require.Equal(t, want, pages, "limit %d: the end is known without one more page", limit)
	}
}

func TestListFilters(t *testing.T) {
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
		"no filter":           {job.Query{}, all},
		"state":               {job.Query{State: job.Canceled}, []job.ID{canceled}},
		"type":                {job.Query{Type: job.Deferred}, []job.ID{later}},
		"work kind":           {job.Query{WorkKind: job.FailImmediate}, []job.ID{failing}},
		"correlation id":      {job.Query{CorrelationID: "Order.17"}, []job.ID{later}},
		"other case of an id": {job.Query{CorrelationID: "order.17"}, nil},
		"two filters":         {job.Query{State: job.Queued, Type: job.Execute}, []job.ID{failing, queued}},
		"no match of both":    {job.Query{State: job.Canceled, Type: job.Deferred}, nil},
		"after, inclusive":    {job.Query{CreatedAfter: at(later, 0)}, []job.ID{failing, later}},
		"just after":          {job.Query{CreatedAfter: at(later, time.Microsecond)}, []job.ID{failing}},
		"before, exclusive":   {job.Query{CreatedBefore: at(canceled, 0)}, []job.ID{queued}},
		"just before":         {job.Query{CreatedBefore: at(canceled, time.Microsecond)}, []job.ID{canceled, queued}},
		"between":             {job.Query{CreatedAfter: at(canceled, 0), CreatedBefore: at(failing, 0)}, []job.ID{later, canceled}},
		"empty range":         {job.Query{CreatedAfter: at(failing, 0), CreatedBefore: at(queued, 0)}, nil},
		"long ago":            {job.Query{CreatedBefore: at(queued, -200*365*24*time.Hour)}, nil},
		"in the far future":   {job.Query{CreatedAfter: at(queued, 200*365*24*time.Hour)}, nil},
		"since long ago":      {job.Query{CreatedAfter: at(queued, -200*365*24*time.Hour)}, all},
		"cursor and time":     {job.Query{After: later, CreatedBefore: at(failing, time.Hour)}, []job.ID{canceled, queued}},
	} {
		test.query.Limit = 3
		got, _ := f.list(test.query)
		require.Equal(t, test.want, got, name)
	}

	id := f.submit(func(s *job.Submission) { s.Job.Params, s.Job.CorrelationID = []byte(`{"a": 1}`), "c" })
	f.finish(failure(f.claim(id, 1), job.FailedOnce))
	page := must(f.store.Jobs(f.ctx(), f.client, job.Query{Limit: 10}))(t)
	want := f.job(id)
	require.NotEmpty(t, want.Params)
	want.Params, want.Definition = nil, nil
	require.Equal(t, want, page.Jobs[0], "lists omit params and definition")
}

// The time in a job's id comes from the clock of the api process, and created_at from Postgres' clock. The clocks may differ.
func TestListByTimeAllowsForSkewedClocks(t *testing.T) {
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

func TestListIsStable(t *testing.T) {
	f := setup(t)
	const n = 30
	ids := f.submitted(n)
	seen := 0
	got, _ := walk(f, func(after job.ID) ([]job.ID, job.ID) {
		page := must(f.store.Jobs(f.ctx(), f.client, job.Query{Limit: 4, After: after}))(t)
		shown := each(page.Jobs, func(j *job.Job) job.ID { return j.ID })
		seen += len(shown)
		f.atOnce(2, func(i int) error { // the call with i = 0 cancels the page's last job, which is deleted below
			f.submit()
			last, next := shown[max(0, len(shown)-1-i)], ids[max(0, n-seen-1-i)]
			return errors.Join(errOf(f.store.Cancel(f.ctx(), f.client, last)), errOf(f.store.Cancel(f.ctx(), f.client, next)))
		})
		require.NoError(t, f.store.Delete(f.ctx(), f.client, shown[len(shown)-1]))
		return shown, page.Next
	})
	require.Equal(t, reversed(ids), got)
}

func TestListOfABatch(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(5))
	f.submit()
	f.insertBatch(f.batch(2))
	got, _ := f.list(job.Query{BatchID: b.ID, Limit: 2})
	require.ElementsMatch(t, jobsOf(b), got)
	got, _ = f.list(job.Query{BatchID: b.ID, State: job.Canceled, Limit: 2})
	require.Empty(t, got)
	for _, id := range []job.ID{b.ID, newID()} { // another client's batch, and an unknown one
		require.Zero(t, must(f.store.Jobs(f.ctx(), newID(), job.Query{BatchID: id, Limit: 10}))(t))
	}
}

// A statement reads few rows beyond the limit of the page. If few rows match a filter, the page ends after 20,000 rows were read.
func TestListOfALongHistory(t *testing.T) {
	f := setup(t)
	b := f.insertBatch(f.batch(1))
	// The client has 40,000 of the jobs. Its 200 newest jobs are in the batch.
	f.insert("jobs", 60_000, columns{"job_id": "uuid7(now() - i * interval '1 s')", "state": "'SUCCEEDED'", "outcome": "'SUCCESS'",
		"started_at": "now()", "finished_at": "now()", "batch_id": "CASE WHEN i <= 300 AND i % 3 > 0 THEN " + quoted(b.ID) + " END",
		"client_id": "CASE WHEN i % 3 = 0 THEN md5((i % 60)::text)::uuid ELSE " + quoted(f.client) + " END"})
	f.exec(`ANALYZE jobs`)
	few := job.ID(one[[16]byte](f, `SELECT md5('3')::uuid`))
	hour := `'` + one[string](f, `SELECT uuid7(now() - interval '1 h')::text`) + `'`
	for name, test := range map[string]struct {
		list          string
		client, batch any
		filters       string // the statement's arguments @from_id and @state
		least, most   int
	}{
		"a page, and one more row":     {"listByClient", f.client, "NULL", `'` + nobody + `', NULL`, 51, 4 * 52},
		"a filter without matches":     {"listByClient", f.client, "NULL", `'` + nobody + `', 'FAILED'`, 20_000, 50_000},
		"few jobs among many":          {"listByClient", few, "NULL", `'` + nobody + `', 'FAILED'`, 1000, 2500},
		"a batch":                      {"listByBatch", f.client, b.ID, `'` + nobody + `', 'FAILED'`, 201, 500},
		"another client's batch":       {"listByBatch", few, b.ID, `'` + nobody + `', 'FAILED'`, 0, 0},
		"an hour: times bound the ids": {"listByClient", f.client, "NULL", hour + `, 'FAILED'`, 0, 7500},
	} {
		quoted := strings.ReplaceAll(fmt.Sprintf(`'%v', '%v'`, test.client, test.batch), `'NULL'`, `NULL`)
		n := f.reads("jobs", repo.Statements[test.list], quoted+`, NULL, '`+lastID+`', `+test.filters+`, NULL, NULL, NULL, NULL, NULL, 51`)
		require.GreaterOrEqual(t, n, test.least, name)
		require.LessOrEqual(t, n, test.most, name)
	}

	oldest := job.ID(one[[16]byte](f, `SELECT job_id FROM jobs WHERE client_id = $1 ORDER BY job_id LIMIT 1`, f.client.String()))
	f.cancel(b.Items[0].JobID)
	f.exec(`UPDATE jobs SET work_kind = 'FAIL_IMMEDIATE', correlation_id = 'c' WHERE job_id = $1`, oldest.String())
	got, pages := f.list(job.Query{WorkKind: job.FailImmediate, Limit: 50})
	require.Equal(t, []job.ID{oldest}, got)
	require.Equal(t, 3, pages, "40,001 jobs, 20,000 a page")
	got, pages = f.list(job.Query{CorrelationID: "c", Limit: 50})
	require.Equal(t, []job.ID{oldest}, got)
	require.Equal(t, 3, pages, "correlation ids have no index")
}

// The cost of a page depends only on its size, not on the length of a client's history.
func TestFeedReadsNoFurtherThanItsLimit(t *testing.T) {
	f := setup(t)
	for table, n := range map[string]int{"events": 20_000, "client_events": 5000} {
		f.insert(table, n, columns{"client_id": quoted(f.client), "tx": "(i % 1000 + 1)::text::xid8"})
	}
	f.exec(`ANALYZE`)
	const limit = 10
	conn := connection(t, f.store.Pool())
	for _, after := range []string{"0", "500", "1000"} {
		args := fmt.Sprintf(`'%s', '%s', '%s', 0, %d, 262144`, f.client, after, nobody, limit)
		p := parsePlan(t, explainAs(t, conn, "ANALYZE, FORMAT JSON", repo.Statements["clientEvents"], args)[0])
		p.walk(func(node plan) { require.LessOrEqual(t, node.Rows, 2.0*limit, "after %s: %+v", after, p) })
	}
	p := parsePlan(t, explainAs(t, conn, "ANALYZE, FORMAT JSON", repo.Statements["latestPositions"], `'{`+f.client.String()+`}'`)[0])
	p.walk(func(node plan) { require.LessOrEqual(t, node.Rows, 2.0, "%+v", p) })
}

func (f *fixture) large(id job.ID, seq, size int) {
	f.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		VALUES ($1, $2, $3, gen_random_uuid(), 'event.emitted', 1, now(), jsonb_build_object('d', repeat('x', $4)))`,
		id.String(), f.client.String(), seq, size-len(`{"d": ""}`))
	f.exec(`UPDATE jobs SET event_seq = $2 WHERE job_id = $1`, id.String(), seq)
}

func dataBytes(events []job.Occurrence) (n int) {
	for _, e := range events {
		n += len(e.Data)
	}
	return n
}

// A page ends with the event that brings its size to 256 KiB.
func TestPagesAreBoundedInBytes(t *testing.T) {
	const kib = 1 << 10
	f := setup(t)
	id := f.submit() // two events
	for i, size := range []int{256 * kib, 256 * kib, 300 * kib, 100 * kib, 100 * kib, 100 * kib, 10, 10} {
		f.large(id, 3+i, size)
	}
	all := f.places()
	require.Len(t, all, 10)
	require.Len(t, (&follower{f: f}).readAll(100), 10)

	var pages []int
	for at := (job.Position{}); ; {
		feed := f.feed(at, 100)
		log := f.events(id, at.Seq, 100)
		require.Equal(t, seqs(log.Events), seqs(feed.Events), "both kinds of pages end at the same event")
		require.LessOrEqual(t, dataBytes(feed.Events), 512*kib)
		pages = append(pages, len(feed.Events))
		at = feed.Events[len(feed.Events)-1].Position
		require.Equal(t, at.Seq < 10, feed.More)
		require.Equal(t, 10, log.Last)
		if !feed.More {
			break
		}
	}
	require.Equal(t, []int{3, 1, 1, 3, 2}, pages)
	feed := f.feed(all[7], 1)
	require.Len(t, feed.Events, 1)
	require.True(t, feed.More, "the limit also ends a page")
	require.False(t, f.feed(all[7], 2).More)
}

func seqs(events []job.Occurrence) []int {
	return each(events, func(e job.Occurrence) int { return e.Seq })
}
