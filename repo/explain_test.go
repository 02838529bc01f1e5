package repo_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// busy is the client that owns a large part of the rows.
const busy = "0198c0de-0000-7000-8000-000000000001"

const (
	nobody = "00000000-0000-0000-0000-000000000000"
	lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"
)

var named = strings.NewReplacer(`'busy'`, `'`+busy+`'`, `'nobody'`, `'`+nobody+`'`, `'last'`, `'`+lastID+`'`)

// bigTables lists tables that no statement may read completely.
var bigTables = []string{"jobs", "events", "reports", "results", "idempotency_keys", "tombstones", "client_events", "batches",
	"webhooks", "deliveries", "delivery_attempts", "outcome_outbox", "bulk_operations", "bulk_items", "erasures", "schedules"}

type use struct{ index, condition string }

type expected struct {
	args string
	uses []use
}

var plans, unexplained = readPlans()

func readPlans() (plans map[string]expected, unexplained []string) {
	plans = map[string]expected{}
	array := regexp.MustCompile(`\[([\w-]+)\]`)
	text := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(read("plans.txt"), "")
	for entry := range strings.SplitSeq(strings.ReplaceAll(text, "\n\t", " "), "\n") {
		if names, ok := strings.CutPrefix(entry, "- "); ok {
			unexplained = append(unexplained, strings.Fields(names)...)
			continue
		}
		head, rest, ok := strings.Cut(entry, ":")
		if !ok {
			continue
		}
		args, uses, _ := strings.Cut(rest, " => ")
		p := expected{args: named.Replace(array.ReplaceAllStringFunc(strings.TrimSpace(args), func(element string) string {
			element = strings.Trim(strings.Replace(element, "uuid", nobody, 1), "[]")
			return `'{` + strings.TrimSuffix(strings.Repeat(element+`,`, 32), `,`) + `}'`
		}))}
		for _, u := range regexp.MustCompile(` \| | => `).Split(uses, -1) {
			if index, condition, _ := strings.Cut(u, " "); index != "" {
				p.uses = append(p.uses, use{index, condition})
			}
		}
		plans[head] = p
	}
	return plans, unexplained
}

func read(file string) string {
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		panic(err)
	}
	return string(text)
}

type plan struct {
	NodeType string   `json:"Node Type"`
	Relation string   `json:"Relation Name"`
	Index    string   `json:"Index Name"`
	Cond     string   `json:"Index Cond"`
	SortKey  []string `json:"Sort Key"`
	Rows     float64  `json:"Actual Rows"` // set only by EXPLAIN ANALYZE
	Plans    []plan
}

func (p plan) walk(visit func(plan)) {
	visit(p)
	for _, child := range p.Plans {
		child.walk(visit)
	}
}

func (p plan) sortsBy(columns ...string) (sorts bool) {
	p.walk(func(node plan) {
		sorts = sorts || slices.EqualFunc(node.SortKey, columns, func(key, column string) bool { return strings.HasSuffix(key, "."+column) })
	})
	return sorts
}

func (p plan) walks(index string) bool {
	return slices.ContainsFunc(p.Plans, func(child plan) bool { return child.Index == index })
}

func explain(t *testing.T, conn *pgxpool.Conn, statement, args string) plan {
	return parsePlan(t, explainAs(t, conn, "FORMAT JSON", statement, args)[0])
}

func parsePlan(t *testing.T, text string) plan {
	var answer []struct{ Plan plan }
	require.NoError(t, json.Unmarshal([]byte(text), &answer))
	return answer[0].Plan
}

func explainAs(t *testing.T, conn *pgxpool.Conn, options, statement, args string) (lines []string) {
	if args != "" {
		args = "(" + args + ")"
	}
	// The simple protocol allows several statements in one call.
	results := must(conn.Conn().PgConn().Exec(t.Context(), fmt.Sprintf(
		`PREPARE p AS %s; EXPLAIN (%s) EXECUTE p%s; DEALLOCATE p`, statement, options, args)).ReadAll())(t)
	for _, row := range results[1].Rows {
		lines = append(lines, string(row[0]))
	}
	return lines
}

func connection(t *testing.T, pool *pgxpool.Pool) *pgxpool.Conn {
	conn := must(pool.Acquire(t.Context()))(t)
	t.Cleanup(conn.Release)
	return conn
}

func TestPlans(t *testing.T) {
	f := setup(t)
	// Sessions keep generic plans. A plan made while the tables are empty stays in use until the tables are analyzed.
	t.Run("empty tables", func(t *testing.T) { requireIndexes(t, f) })
	f.script(named.Replace(read("seed.sql")))
	t.Run("after some days", func(t *testing.T) { requireIndexes(t, f) })
	t.Run("moved clock", func(t *testing.T) { requirePlansInTime(t, f) })
	t.Run("bucket of history", func(t *testing.T) { requireOwnPart(t, f) })
	f.exec(`VACUUM jobs`)
	t.Run("counts", func(t *testing.T) { requireCountsInIndexes(t, f) })
	t.Run("transaction ids from the future", func(t *testing.T) { requireFutureTxByIndex(t, f) })
	f.exec(`DELETE FROM pg_statistic`) // like after a restore
	t.Run("transaction ids from the future, without statistics", func(t *testing.T) { requireFutureTxByIndex(t, f) })
}

func requireIndexes(t *testing.T, f *fixture) {
	conn := connection(t, f.store.Pool())
	for name, statement := range repo.Statements {
		want, ok := plans[name]
		if slices.Contains(unexplained, name) {
			continue
		}
		require.True(t, ok, "%s: testdata/plans.txt does not say how it finds its rows", name)
		p := explain(t, conn, statement, want.args)
		found := map[use]bool{}
		p.walk(func(node plan) {
			if node.NodeType == "Seq Scan" {
				require.NotContains(t, bigTables, node.Relation, name)
			}
			for _, u := range want.uses {
				if node.Index == u.index && strings.Contains(node.Cond, u.condition) {
					found[u] = true
				}
			}
		})
		requireLockOrder(t, name, p)
		for _, u := range want.uses {
			require.True(t, found[u], "%s: no search of %s by %q in %+v", name, u.index, u.condition, p)
		}
	}
	require.Len(t, repo.Statements, len(plans)+len(unexplained), "testdata/plans.txt lists only existing statements")
}

// requireLockOrder checks that all statements lock rows in the same order, which prevents deadlocks. They lock jobs, deliveries and
// webhooks by id, outcomes by job and attempt, and idempotency keys by client and key. Statements that skip locked rows may use any order.
func requireLockOrder(t *testing.T, name string, p plan) {
	// A statement named emit... locks one row.
	waits := !strings.Contains(repo.Statements[name], "SKIP LOCKED") && !strings.HasPrefix(name, "emit")
	p.walk(func(node plan) {
		switch {
		case node.NodeType == "LockRows" && waits:
			ordered := node.sortsBy("job_id", "attempt")
			for _, key := range []string{"job_id", "delivery_id", "webhook_id", "key_id", "schedule_id", "lease_id"} {
				ordered = ordered || node.sortsBy(key)
			}
			for _, index := range []string{"outcome_outbox_pkey", "clients_pkey", "webhooks_client", "schedules_pkey", "bulk_operations_pkey",
				"testbed_faults_pkey", "testbed_sessions_open", "headroom_leases_pkey"} {
				ordered = ordered || node.walks(index)
			}
			require.True(t, ordered, "%s: %+v", name, node)
		case node.NodeType == "ModifyTable" && node.Relation == "idempotency_keys" && waits:
			require.True(t, node.sortsBy("client_id", "key"), "%s: %+v", name, node)
		}
	})
}

// Waiting rows are counted only in the indexes, because there may be a million rows of some hundred bytes. Jobs held by workers may be
// read from the table, because there are only a few.
func requireCountsInIndexes(t *testing.T, f *fixture) {
	conn := connection(t, f.store.Pool())
	for name, indexes := range map[string]int{
		"countLoad": 2, "countLoadByClient": 1, "unfinishedJobs": 1, "readBacklog": 2, "adminSituation": 2,
	} {
		counted := map[string]bool{}
		explain(t, conn, repo.Statements[name], plans[name].args).walk(func(node plan) {
			if slices.Contains([]string{"jobs_waiting", "jobs_scheduled"}, node.Index) && node.Cond == "" {
				require.Equal(t, "Index Only Scan", node.NodeType, "%s: %s", name, node.Index)
				counted[node.Index] = true
			}
		})
		require.Len(t, counted, indexes, name)
	}
}

// Migrate runs the statement anyFutureTx without the store's settings. The planner must use the indexes even then.
func requireFutureTxByIndex(t *testing.T, f *fixture) {
	searched := map[string]int{}
	parsePlan(t, one[string](f, `EXPLAIN (FORMAT JSON) `+repo.Statements["anyFutureTx"])).walk(func(node plan) {
		require.NotEqual(t, "Seq Scan", node.NodeType, node.Relation)
		searched[node.Index]++
	})
	require.Equal(t, []int{2, 2}, []int{searched["events_client"], searched["client_events_client"]})
}

// The statement that writes one bucket of history reads only that bucket's part of the indexes.
func requireOwnPart(t *testing.T, f *fixture) {
	at := f.ago(90*time.Second, 10*time.Second)
	ids := one[[]string](f, `SELECT array_agg(overlay('`+nobody+`'
		PLACING left(uuid7($1::timestamptz + i * interval '10 s')::text, 13) FROM 1 FOR 13)) FROM generate_series(0, 1) i`, at)
	args := fmt.Sprintf(`'%s', '%s', 200000`, at.Format(time.RFC3339Nano), strings.Join(ids, `', '`))
	// For ten seconds of history, seed.sql has ten submitted jobs and at most one ended job.
	require.Less(t, f.reads("jobs", repo.Statements["writeHistory"], args), 100)
}

// On connections of a test bed, statements use the same indexes as on other connections. Before the first move of the clock, the plans are
// equal, so the clock costs nothing. After a move, the plans contain the time as a constant.
func requirePlansInTime(t *testing.T, f *fixture) {
	s := repotest.OpenURL(t, f.url, asTestbed)
	conn, plain := connection(t, s.Pool()), connection(t, f.store.Pool())
	text := func(conn *pgxpool.Conn, name string) string {
		lines := explainAs(t, conn, "COSTS OFF", repo.Statements[name], plans[name].args)
		return strings.ReplaceAll(strings.Join(lines, "\n"), "pg_catalog.", "")
	}
	for _, name := range []string{"queueDue", "waitingJobs", "cleanJobs", "dueDeliveries", "claimDeliveries", "step", "insertJobs"} {
		require.Equal(t, text(plain, name), text(conn, name), name)
	}
	require.Contains(t, text(conn, "queueDue"), "execution_at <= now()")

	for _, m := range []testbed.ClockMove{advance(time.Hour), rate(60), setFrozen(true)} {
		move(t, s, m)
		for _, found := range []struct{ name, index, condition string }{
			{"queueDue", "jobs_scheduled", "execution_at <= "}, {"waitingJobs", "jobs_waiting", "run_at <= "},
			{"cleanJobs", "jobs_ended", "finished_at <= "},
			{"cleanResults", "results_expiry", "expires_at <= "}, {"cleanIdempotencyKeys", "idempotency_keys_expiry", "expires_at <= "},
		} {
			uses := false
			explain(t, conn, repo.Statements[found.name], plans[found.name].args).walk(func(node plan) {
				uses = uses || node.Index == found.index && strings.Contains(node.Cond, found.condition) &&
					!strings.Contains(node.Cond, "public.")
			})
			require.True(t, uses, found.name)
		}
	}
}

// A claim or a cancellation writes one new version of the job's row, with new index entries. A start changes no indexed column, and updates
// no index.
func TestUpdatesInPlace(t *testing.T) {
	f := setup(t)
	const n = 20
	var claims []job.ClaimID
	for range n {
		claims = append(claims, f.assigned(f.submit(), 1))
	}
	waiting := f.submit()
	f.exec(`VACUUM jobs`) // makes room on the pages, like autovacuum
	for _, test := range []struct {
		name      string
		args      []any
		all, kept int
	}{
		{"step", f.stepArguments(job.Assigned, job.ClaimID{JobID: waiting, Attempt: 1}), 1, 0},
		{"cancelJobs", f.cancelArguments(waiting), 1, 0},
		{"step", f.stepArguments(job.Running, claims...), n, n},
	} {
		tx := must(f.db.Begin(f.ctx()))(t)
		t.Cleanup(func() { _ = tx.Rollback(f.ctx()) })
		count := func() (all, inPlace int) {
			require.NoError(t, tx.QueryRow(f.ctx(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables
				WHERE relname = 'jobs'`).Scan(&all, &inPlace))
			return all, inPlace
		}
		allBefore, inPlaceBefore := count()
		must(tx.Exec(f.ctx(), repo.Statements[test.name], test.args...))(t)
		all, inPlace := count()
		require.Equal(t, []int{test.all, test.kept}, []int{all - allBefore, inPlace - inPlaceBefore}, test.name)
		require.NoError(t, tx.Rollback(f.ctx()))
	}
}
