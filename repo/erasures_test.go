package repo_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// ofNoClient are the tables that hold nothing of a client, or what is kept of it: see ADR 51.
var ofNoClient = []string{"audit", "erasures", "goose_db_version", "history", "maintenance_state", "pauses", "signing_keys",
	"testbed_clock", "workers"}

// rowsOfAClient fill each table that can hold a client's data, with jobs of two kinds.
const rowsOfAClient = `
INSERT INTO clients (client_id) VALUES ('{client}');
INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at) SELECT 'k' || n || '{client}', '{client}', sha256(''), now(),
	now() + interval '1 day' FROM generate_series(1, 2) n;
INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at, deleted_at)
SELECT gen_random_uuid(), '{client}', 'http://x.test', '{*}', 'd', 'binary', 'x', now(), now(), CASE WHEN n = 2 THEN now() END
	FROM generate_series(1, 2) n;
INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused)
SELECT gen_random_uuid(), '{client}', now(), 'en', 'r', '[]', 0 FROM generate_series(1, 2);
INSERT INTO jobs (job_id, client_id, batch_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq,
	created_at, updated_at, run_at, queued_at, started_at, finished_at, callback, language, request_id)
SELECT uuid7(now()), '{client}', (SELECT batch_id FROM batches WHERE client_id = '{client}' LIMIT 1), 'EXECUTE', 'SUCCESS_FAST', '{}',
	CASE WHEN n % 2 = 0 THEN 'SUCCEEDED' ELSE 'QUEUED' END, CASE WHEN n % 2 = 0 THEN 'SUCCESS' END, 4, false, 2, now(), now(), now(), now(),
	CASE WHEN n % 2 = 0 THEN now() END, CASE WHEN n % 2 = 0 THEN now() END, 'http://x.test/callback', 'en', 'r'
FROM generate_series(1, {jobs}) n;
INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
SELECT job_id, client_id, 1, gen_random_uuid(), 'job.created', NULL, 'CREATED', 1, now(), '{}' FROM jobs WHERE client_id = '{client}';
INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq)
SELECT job_id, 1, 'SUCCESS', now(), now(), 0, 2 FROM jobs WHERE client_id = '{client}' AND finished_at IS NOT NULL;
INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
SELECT job_id, 1, 'text/plain', 4, sha256('abcd'), now() + interval '1 day', 'abcd' FROM reports JOIN jobs USING (job_id)
	WHERE client_id = '{client}';
INSERT INTO outcome_outbox (job_id, attempt, finished_at) SELECT job_id, 1, now() FROM jobs WHERE client_id = '{client}';
INSERT INTO tombstones (job_id, client_id, expired_at) VALUES (gen_random_uuid(), '{client}', now());
INSERT INTO client_events (event_id, client_id, event_name, occurred_at, data) VALUES (gen_random_uuid(), '{client}', 'batch.completed',
	now(), '{}');
INSERT INTO deliveries (delivery_id, client_id, endpoint_id, webhook_id, seq, event_id, event_name, created_at, state, settled_at)
SELECT gen_random_uuid(), client_id, webhook_id, webhook_id, 0, gen_random_uuid(), 'batch.completed', now(), 'DELIVERED', now()
	FROM webhooks WHERE client_id = '{client}';
INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms) SELECT delivery_id, 1, now(), 1 FROM deliveries
	WHERE client_id = '{client}';
INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
SELECT owner::uuid, 'jobs', '{client}', 'h', '{client}', now(), now() + interval '1 day'
	FROM unnest(ARRAY['{client}', '00000000-0000-0000-0000-000000000000']) owner;
INSERT INTO testbed_faults (client_id, position, rule_id, rule, seed)
SELECT '{client}', n, gen_random_uuid(), '{"match":{},"effect":{"status":503}}', 1 FROM generate_series(1, 2) n;
INSERT INTO testbed_sessions (session_id, client_id, profile, seed, rules, created_at, ended_at)
SELECT gen_random_uuid(), '{client}', '', 1, '{}', now(), now() FROM generate_series(1, 2) n;
INSERT INTO testbed_exchanges (client_id, session_id, number, exchange)
SELECT client_id, session_id, n, '{}' FROM testbed_sessions, generate_series(1, 3) n WHERE client_id = '{client}';
INSERT INTO bulk_operations (bulk_id, client_id, operator, action, filter, rate, override, request_id, gathered_at, total)
SELECT gen_random_uuid(), '{client}', '', 'retry', '{}', 1, false, 'r', now(), 1;
INSERT INTO schedules (schedule_id, client_id, name, cron, time_zone, jitter_ms, overlap, catch_up, catch_up_max, job, language, request_id,
	paused, created_at, updated_at)
SELECT gen_random_uuid(), '{client}', 'n', '* * * * *', '', 0, 'allow', 'none', 1, '{"type":"EXECUTE"}', 'en', 'r', n = 1, now(), now()
	FROM generate_series(1, 2) n;
INSERT INTO bulk_items (bulk_id, job_id, client_id, attempt, event_seq)
SELECT bulk_id, gen_random_uuid(), '{client}', 1, 1 FROM bulk_operations WHERE client_id = '{client}' OR operator = 'ann';
`

// fill gives a client rows in every table, with so many jobs.
func (f *fixture) fill(client job.ID, jobs string) {
	f.t.Helper()
	conn, err := f.db.Acquire(f.ctx())
	require.NoError(f.t, err)
	defer conn.Release()
	rows := strings.NewReplacer("{client}", client.String(), "{jobs}", jobs).Replace(rowsOfAClient)
	_, err = conn.Conn().PgConn().Exec(f.ctx(), rows).ReadAll()
	require.NoError(f.t, err)
}

// contents gives the rows of all tables that can hold a client's data, as text.
func (f *fixture) contents() map[string][]string {
	f.t.Helper()
	found := map[string][]string{}
	for _, table := range job.ErasedTables {
		rows, err := f.db.Query(f.ctx(), `SELECT t::text FROM `+table+` t ORDER BY 1`)
		require.NoError(f.t, err)
		found[table], err = pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(f.t, err)
	}
	return found
}

func (f *fixture) erase(client job.ID) *job.Erasure {
	f.t.Helper()
	e, begun, err := f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{
		ClientID: client, Operator: "ann", Reason: "<asked> for", RequestID: "r",
	})
	require.NoError(f.t, err)
	require.True(f.t, begun)
	return e
}

// eraseStep does a part of an erasure as its runner does.
func (f *fixture) eraseStep(id job.ID) job.ErasureStep {
	f.t.Helper()
	step, err := f.store.EraseStep(f.ctx(), id)
	require.NoError(f.t, err)
	for _, id := range step.Unfinished {
		_, _, err := f.store.Cancel(f.ctx(), step.Erasure.ClientID, id)
		require.NoError(f.t, err)
	}
	return step
}

func (f *fixture) eraseAll(id job.ID) *job.Erasure {
	f.t.Helper()
	// It waits for all transactions of the server, which are other tests' too.
	require.Eventually(f.t, func() bool {
		step := f.eraseStep(id)
		for step.Progress && step.Erasure.State() != job.ErasureDone {
			step = f.eraseStep(id)
		}
		return step.Erasure.State() == job.ErasureDone
	}, patience, tick)
	e, err := f.store.Erasure(f.ctx(), id)
	require.NoError(f.t, err)
	return e
}

// A table that is added must be one that an erasure empties, or be known to hold nothing of a client.
func TestErasuresKnowEveryTable(t *testing.T) {
	t.Parallel()
	f := setup(t)
	rows, err := f.db.Query(f.ctx(), `SELECT table_name FROM information_schema.tables
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE'`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.ElementsMatch(t, tables, slices.Concat(job.ErasedTables, ofNoClient))
	rows, err = f.db.Query(f.ctx(), `SELECT DISTINCT table_name FROM information_schema.columns WHERE table_schema = 'public'
		AND column_name IN ('client_id', 'job_id', 'batch_id', 'webhook_id', 'delivery_id', 'bulk_id', 'event_id', 'key_id', 'resource_id')`)
	require.NoError(t, err)
	naming, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Subset(t, slices.Concat(job.ErasedTables, []string{"erasures"}), naming, "what names something of a client is not kept")
}

func TestEraseAClientAndNothingElse(t *testing.T) {
	t.Parallel()
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
	again, begun, err := f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{ClientID: client})
	require.NoError(t, err)
	require.False(t, begun)
	require.Equal(t, e, again)
	require.True(t, one[bool](f, `SELECT bool_and(revoked_at IS NOT NULL) FROM api_keys WHERE client_id = $1`, client.String()))

	e = f.eraseAll(e.ID)
	after := f.contents()
	before["bulk_operations"] = slices.Clone(after["bulk_operations"]) // an item of the operator's counts as skipped:
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

	_, _, err = f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{ClientID: client})
	require.Equal(t, job.CodeClientNotFound, job.CodeOf(err), "it is erased")
	_, _, err = f.store.BeginErasure(f.ctx(), newID(), job.ErasureRequest{ClientID: newID()})
	require.Equal(t, job.CodeClientNotFound, job.CodeOf(err), "there was none")
	step, err := f.store.EraseStep(f.ctx(), e.ID)
	require.NoError(t, err)
	require.Nil(t, step.Erasure, "a former leader finds nothing to do")
	list, next, err := f.store.Erasures(f.ctx(), job.ID{}, 1)
	require.NoError(t, err)
	require.Zero(t, next)
	require.Equal(t, []*job.Erasure{e}, list)
}

// Each part is one commit: a leader that dies in one of them leaves what the next one begins with, and a former one that
// comes back meanwhile does nothing.
func TestErasureGoesOnAfterEveryPart(t *testing.T) {
	t.Parallel()
	f := setup(t)
	client := newID()
	f.fill(client, "6")
	e := f.erase(client)
	for began := time.Now(); ; {
		require.Less(t, time.Since(began), patience)
		before := f.contents()
		tx, err := f.db.Begin(f.ctx())
		require.NoError(t, err)
		_, err = tx.Exec(f.ctx(), `SELECT FROM erasures WHERE erasure_id = $1 FOR UPDATE`, e.ID.String())
		require.NoError(t, err)
		step, err := f.store.EraseStep(f.ctx(), e.ID)
		require.NoError(t, err)
		require.Nil(t, step.Erasure, "another leader is at it")
		require.NoError(t, tx.Rollback(f.ctx()))
		require.Equal(t, before, f.contents())

		// A commit that fails is one that never was.
		f.exec(`CREATE OR REPLACE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'killed'; END $$;
			CREATE CONSTRAINT TRIGGER die AFTER UPDATE ON erasures DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION die()`)
		_, err = f.store.EraseStep(f.ctx(), e.ID)
		require.Error(t, err)
		f.exec(`DROP TRIGGER die ON erasures`)
		require.Equal(t, before, f.contents())

		// A leader that dies after the commit cancels nothing: the jobs are found again.
		step, err = f.store.EraseStep(f.ctx(), e.ID)
		require.NoError(t, err)
		if step.Erasure.State() == job.ErasureDone {
			require.Equal(t, 6, step.Erasure.Removed["jobs"])
			break
		}
		if step.Erasure.Step == "jobs" {
			for _, id := range step.Unfinished {
				_, _, err := f.store.Cancel(f.ctx(), client, id)
				require.NoError(t, err)
			}
		}
	}
	for table, rows := range f.contents() {
		require.Empty(t, rows, table)
	}
}

// What is stored while a client is being erased, and afterwards, is refused, and it does not keep the others that share a
// statement.
func TestNothingNewForAnErasedClient(t *testing.T) {
	t.Parallel()
	f := setup(t)
	client := newID()
	f.fill(client, "1")
	e := f.erase(client)
	refused := func(err error, what string) {
		t.Helper()
		require.Equal(t, job.CodeClientNotFound, job.CodeOf(err), what)
	}
	for _, when := range []string{"while it is erased", "afterwards"} {
		_, err := f.store.InsertJob(f.ctx(), f.submission(keyed("k"+when), func(s *job.Submission) { s.Job.ClientID = client }))
		refused(err, when)
		f.submit()
		_, err = f.store.InsertBulk(f.ctx(), job.Bulk{ID: newID(), Owner: job.BulkOwner{ClientID: client}, Action: job.BulkCancel, Rate: 1})
		refused(err, when)
		_, err = f.store.InsertWebhook(f.ctx(), job.Webhook{
			ID: newID(), ClientID: client, URL: "http://x.test", Events: []string{"*"}, ContentMode: "binary",
			Secrets: []job.SealedSecret{{Sealed: []byte("s")}},
		})
		refused(err, when)
		_, _, err = f.store.Once(f.ctx(), job.RequestKey{ClientID: client, Scope: "test", Key: "k"}, func(context.Context) (job.Answer, error) {
			return job.Answer{Status: 200}, nil
		})
		refused(err, when)
		_, err = f.db.Exec(f.ctx(), `INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused)
			VALUES (gen_random_uuid(), $1, now(), 'en', 'r', '[]', 0)`, client.String())
		requireBroken(t, "client_not_erased", err)
		_, err = f.db.Exec(f.ctx(), `INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at)
			VALUES ('new', $1, sha256(''), now(), now())`, client.String())
		if when == "while it is erased" {
			requireBroken(t, "client_not_erased", err)
			f.eraseAll(e.ID)
		}
		require.Error(t, err)
	}
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM idempotency_keys WHERE client_id = $1`, client.String()))
}

// An attempt that reports after its job has gone writes nothing.
func TestALateReportOfAnErasedClientIsRefused(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`INSERT INTO clients (client_id) VALUES ($1)`, f.client.String())
	lease := f.run()
	f.eraseAll(f.erase(f.client).ID)
	_, err := f.store.Finish(f.ctx(), success(lease))
	require.ErrorIs(t, err, job.ErrStale)
	for table, rows := range f.contents() {
		require.Empty(t, rows, table)
	}
}
