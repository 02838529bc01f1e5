package repo_test

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// untouchedTables lists the tables that an erasure does not touch. Their data belongs to no client, or is kept
// (docs/reference/operator-api.md).
var untouchedTables = []string{"audit", "ended_sessions", "erasures", "goose_db_version", "history", "maintenance_state", "pauses",
	"signing_keys", "testbed_clock", "workers", "headroom", "headroom_leases"}

func (f *fixture) fill(client job.ID, jobs string) {
	f.script(strings.NewReplacer("{client}", client.String(), "{jobs}", jobs).Replace(read("client.sql")))
}

func (f *fixture) contents() map[string][]string {
	found := map[string][]string{}
	for _, table := range job.ErasedTables {
		rows := must(f.db.Query(f.ctx(), `SELECT t::text FROM `+table+` t ORDER BY 1`))(f.t)
		found[table] = must(pgx.CollectRows(rows, pgx.RowTo[string]))(f.t)
	}
	return found
}

func (f *fixture) erase(client job.ID) *job.Erasure {
	e, begun := must2(f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{
		ClientID: client, Operator: "ann", Reason: "<asked> for", RequestID: "r",
	}))(f.t)
	require.True(f.t, begun)
	return e
}

func (f *fixture) eraseStep(id job.ID) job.ErasureStep {
	step := must(f.store.EraseStep(f.ctx(), id))(f.t)
	for _, id := range step.Unfinished {
		must2(f.store.Cancel(f.ctx(), step.Erasure.ClientID, id))(f.t)
	}
	return step
}

func (f *fixture) eraseAll(id job.ID) *job.Erasure {
	// An erasure waits for all transactions on the server, including those of other tests.
	testkit.Eventually(f.t, "the client is erased", func() bool {
		step := f.eraseStep(id)
		for step.Progress && step.Erasure.State() != job.ErasureDone {
			step = f.eraseStep(id)
		}
		return step.Erasure.State() == job.ErasureDone
	})
	return must(f.store.Erasure(f.ctx(), id))(f.t)
}

// An erasure must remove a client's rows from every table that untouchedTables does not list.
func TestErasuresKnowEveryTable(t *testing.T) {
	f := setup(t)
	rows := must(f.db.Query(f.ctx(), `SELECT table_name FROM information_schema.tables
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE'`))(t)
	require.ElementsMatch(t, must(pgx.CollectRows(rows, pgx.RowTo[string]))(t), slices.Concat(job.ErasedTables, untouchedTables))
	rows = must(f.db.Query(f.ctx(), `SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public'
		AND column_name IN ('client_id', 'job_id', 'batch_id', 'webhook_id', 'delivery_id', 'bulk_id', 'event_id', 'key_id', 'resource_id')`))(t)
	naming := must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	require.Subset(t, slices.Concat(job.ErasedTables, []string{"erasures"}), naming, "tables that refer to a client's rows are erased")
}

func TestEraseAClientAndNothingElse(t *testing.T) {
	f := setup(t)
	f.exec(`INSERT INTO bulk_operations (bulk_id, operator, action, filter, rate, override, request_id, gathered_at, total, skipped)
		VALUES (gen_random_uuid(), 'ann', 'retry', '{}', 1, false, 'r', now(), 2, 0)`)
	other, client := newID(), newID()
	f.fill(other, "4")
	before := f.contents()
	f.fill(client, "250")
	for _, table := range job.ErasedTables {
		require.Greater(t, len(f.contents()[table]), len(before[table]), "%s: the client has rows of it", table)
	}

	e := f.erase(client)
	again, begun := must2(f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{ClientID: client}))(t)
	require.False(t, begun)
	require.Equal(t, e, again)
	require.True(t, one[bool](f, `SELECT bool_and(revoked_at IS NOT NULL) FROM api_keys WHERE client_id = $1`, client.String()))

	e = f.eraseAll(e.ID)
	after := f.contents()
	before["bulk_operations"] = slices.Clone(after["bulk_operations"]) // changed: the operation counts the erased item as skipped
	require.Equal(t, before, after)
	require.Equal(t, 1, one[int](f, `SELECT skipped FROM bulk_operations WHERE operator = 'ann'`))
	require.Equal(t, 2, one[int](f, `SELECT count(*)::int FROM bulk_operations`))

	require.Equal(t, job.ErasedTables, slices.Sorted(maps.Keys(e.Removed)))
	require.Equal(t, job.ErasedTables, slices.Sorted(maps.Keys(e.Remaining)))
	for table, n := range e.Removed {
		require.Positive(t, n, table)
		require.Zero(t, e.Remaining[table], table)
	}
	require.Equal(t, 250, e.Removed["jobs"])
	require.Equal(t, 2, e.Removed["idempotency_keys"])
	require.Equal(t, 2, e.Removed["bulk_items"])
	sum := sha256.Sum256([]byte(e.Record))
	require.Equal(t, sum[:], e.SHA256)
	var record map[string]any
	require.NoError(t, json.Unmarshal([]byte(e.Record), &record))
	require.Equal(t, []any{client.String(), e.ID.String(), "ann", "<asked> for"},
		[]any{record["client_id"], record["erasure_id"], record["operator"], record["reason"]})

	_, _, err := f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{ClientID: client})
	require.Equal(t, job.CodeClientNotFound, job.CodeOf(err), "the client is erased")
	_, _, err = f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{ClientID: newID()})
	require.Equal(t, job.CodeClientNotFound, job.CodeOf(err), "the client never existed")
	require.Nil(t, must(f.store.EraseStep(f.ctx(), e.ID))(t).Erasure, "a former leader finds nothing to do")
	list, next := must2(f.store.Erasures(f.ctx(), job.ID{}, 1))(t)
	require.Zero(t, next)
	require.Equal(t, []*job.Erasure{e}, list)
}

// Each part is one commit. If a leader dies in a part, the next leader repeats the part. While one leader holds the lock, another leader
// does nothing.
func TestErasureResumesAfterEveryPart(t *testing.T) {
	f := setup(t)
	client := newID()
	f.fill(client, "6")
	e := f.erase(client)
	for parts := 0; ; parts++ {
		require.Less(t, parts, 1000, "the erasure makes no progress")
		before := f.contents()
		tx := must(f.db.Begin(f.ctx()))(t)
		must(tx.Exec(f.ctx(), `SELECT FROM erasures WHERE erasure_id = $1 FOR UPDATE`, e.ID.String()))(t)
		step := must(f.store.EraseStep(f.ctx(), e.ID))(t)
		require.Nil(t, step.Erasure, "another leader holds the lock")
		require.NoError(t, tx.Rollback(f.ctx()))
		require.Equal(t, before, f.contents())

		// A failed commit has no effect.
		f.exec(`CREATE OR REPLACE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'killed'; END $$;
			CREATE CONSTRAINT TRIGGER die AFTER UPDATE ON erasures DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`)
		_, err := f.store.EraseStep(f.ctx(), e.ID)
		require.Error(t, err)
		f.exec(`DROP TRIGGER die ON erasures`)
		require.Equal(t, before, f.contents())

		// The test cancels nothing here, as if the leader died after the commit. The step "jobs" returns the unfinished jobs again.
		step = must(f.store.EraseStep(f.ctx(), e.ID))(t)
		if step.Erasure.State() == job.ErasureDone {
			require.Equal(t, 6, step.Erasure.Removed["jobs"])
			break
		}
		if step.Erasure.Step == "jobs" {
			for _, id := range step.Unfinished {
				must2(f.store.Cancel(f.ctx(), client, id))(t)
			}
		}
	}
	for table, rows := range f.contents() {
		require.Empty(t, rows, table)
	}
}

// Writes that need no API key are refused for a client during and after its erasure. A refused item does not affect the other items of its
// statement. TestAnEndedKeyChangesNothing covers requests with the client's keys.
func TestErasedClientGetsNoNewData(t *testing.T) {
	f := setup(t)
	client := newID()
	f.fill(client, "1")
	e := f.erase(client)
	for _, when := range []string{"while it is erased", "afterwards"} {
		for _, c := range f.additionsFor(client, "k"+when) {
			require.Equal(t, job.CodeClientNotFound, codeOf(c.do(f.ctx())), "%s %s", c.name, when)
		}
		f.submit()
		_, err := f.db.Exec(f.ctx(), `INSERT INTO api_keys (key_id, client_id, secret_hash, issued_by, created_at, expires_at)
			VALUES ('new', $1, sha256(''), 'CREATED', now(), now())`, client.String())
		if when == "while it is erased" {
			requireBroken(t, "client_not_erased", err)
			f.eraseAll(e.ID)
		}
		require.Error(t, err)
	}
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM idempotency_keys WHERE client_id = $1`, client.String()))
}
