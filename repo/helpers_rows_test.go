package repo_test

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/repo/repotest"
)

type columns = repotest.Columns

func (f *fixture) insert(table string, n int, given columns) {
	repotest.Insert(f.t, f.url, table, n, given)
}

func quoted(id job.ID) string { return `'` + id.String() + `'::uuid` }

type event struct {
	Seq        int
	Name       string
	Prev, Next string
	Attempt    int
	At         time.Time
	Data       map[string]any
}

func (f *fixture) log(id job.ID) []event {
	rows := must(f.db.Query(f.ctx(), `SELECT seq, event_name, coalesce(prev_state, ''), coalesce(next_state, ''), attempt, occurred_at, data
		FROM events WHERE job_id = $1 ORDER BY seq`, id.String()))(f.t)
	events := must(pgx.CollectRows(rows, func(row pgx.CollectableRow) (e event, err error) {
		var data []byte
		if err := row.Scan(&e.Seq, &e.Name, &e.Prev, &e.Next, &e.Attempt, &e.At, &data); err != nil {
			return e, err
		}
		return e, json.Unmarshal(data, &e.Data)
	}))(f.t)
	return events
}

func (f *fixture) names(id job.ID) []string {
	return each(f.log(id), func(e event) string { return e.Name })
}

func (f *fixture) state(id job.ID) job.State {
	return job.State(one[string](f, `SELECT state FROM jobs WHERE job_id = $1`, id.String()))
}

func (f *fixture) all(id job.ID) string {
	return one[string](f, `SELECT jsonb_pretty(jsonb_build_object(
		'job', (SELECT to_jsonb(j) FROM jobs j WHERE job_id = $1),
		'events', (SELECT jsonb_agg(to_jsonb(e) ORDER BY seq) FROM events e WHERE job_id = $1),
		'reports', (SELECT jsonb_agg(to_jsonb(r) ORDER BY attempt) FROM reports r WHERE job_id = $1),
		'result', (SELECT to_jsonb(r) FROM results r WHERE job_id = $1),
		'keys', (SELECT jsonb_agg(to_jsonb(k)) FROM idempotency_keys k WHERE resource_id = $1),
		'tombstone', (SELECT to_jsonb(t) FROM tombstones t WHERE job_id = $1)))`, id.String())
}

// The helpers below put several items into one flush. They make both flushers of an operation wait for a lock, so that later items queue
// up.

// `unlock` may be called twice.
func (f *fixture) lock(sql string, args ...any) (unlock func()) {
	tx := f.begin()
	must(tx.Exec(f.ctx(), sql, args...))(f.t)
	return sync.OnceFunc(func() { _ = tx.Rollback(context.Background()) })
}

func (f *fixture) begin() pgx.Tx {
	tx := must(f.db.Begin(f.ctx()))(f.t)
	f.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (f *fixture) lockRow(id string) (unlock func()) {
	return f.lock(`SELECT FROM jobs WHERE job_id = $1 FOR UPDATE`, id)
}

func (f *fixture) awaitBlocked(n int) {
	f.await(`SELECT count(*) = $1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, n)
}

func (f *fixture) await(sql string, args ...any) {
	testkit.Eventually(f.t, sql, func() bool { return one[bool](f, sql, args...) })
}

func (f *fixture) awaitQueued(operation string, n int) {
	testkit.Eventually(f.t, "the items are queued", func() bool { return f.store.Queued(operation) == n })
}

// occupy makes all flushers of an operation wait for a table lock. Each call of `do` submits an item for one flusher. Later items queue up
// until `release` is called.
func (f *fixture) occupy(do func()) (release func()) {
	unlock := f.lock(`LOCK TABLE jobs IN SHARE MODE`)
	var busy sync.WaitGroup
	for n := range pg.Flushers {
		busy.Go(do)
		f.awaitBlocked(n + 1)
	}
	return func() {
		unlock()
		busy.Wait()
	}
}

// inOneFlush makes n concurrent calls of `do` share a flush. Calls of `submitOne` keep the flushers busy meanwhile.
func (f *fixture) inOneFlush(operation string, submitOne func(), n int, do func(i int)) {
	release := f.occupy(submitOne)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { do(i) })
	}
	f.awaitQueued(operation, n)
	release()
	calls.Wait()
}

func patient(c *repo.Config) { c.Timeout = 3 * testkit.Patience }

func each[T, R any](all []T, of func(T) R) (found []R) {
	for _, v := range all {
		found = append(found, of(v))
	}
	return found
}
