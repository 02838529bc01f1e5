package repo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/migrations"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// schema describes what a database holds besides its data.
func schema(t *testing.T, f *fixture) []string {
	t.Helper()
	rows, err := f.db.Query(f.ctx(), `
		SELECT format('column %s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns
			WHERE table_schema = 'public'
		UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
			WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT format('option %s %s', relname, reloptions) FROM pg_class WHERE relnamespace = 'public'::regnamespace
			AND reloptions IS NOT NULL
		UNION ALL SELECT format('storage %s.%s %s', attrelid::regclass, attname, attstorage) FROM pg_attribute
			WHERE attrelid = 'results'::regclass::oid AND attnum > 0
		ORDER BY 1`)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

func TestMigrateDownAndUpAgain(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, f.store.Ping(f.ctx()))
	before := schema(t, f)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1), "nothing to do")

	require.NoError(t, repo.Migrate(f.ctx(), f.url, 0))
	require.Equal(t, "goose_db_version", one[string](f, `SELECT string_agg(tablename, ' ') FROM pg_tables WHERE schemaname = 'public'`))
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM pg_proc WHERE pronamespace = 'public'::regnamespace`))
	err := f.store.Ping(f.ctx())
	require.Equal(t, job.CodeConfigInvalid, job.CodeOf(err))
	require.ErrorContains(t, err, "version 0")

	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, before, schema(t, f))
	require.NoError(t, f.store.Ping(f.ctx()))
	f.submit()
}

// Jobs and events that were there before there were webhooks are delivered from
// then on; and what tells of webhooks alone goes with them.
func TestMigrateWebhooksDownAndUp(t *testing.T) {
	t.Parallel()
	f := setup(t)
	newest := schema(t, f)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 2))
	before := schema(t, f)
	id := f.submitBefore("http://cb.test/x")
	f.exec(`INSERT INTO idempotency_keys VALUES ($1, 'jobs', 'k', 'hash', $2, 'QUEUED', now(), now() + interval '1 day')`, f.client.String(),
		id.String())
	f.clientEvent(f.db)

	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, newest, schema(t, f))
	require.Zero(t, f.count("deliveries"), "what was before is not delivered")
	f.claim(id, 1)
	require.Equal(t, []string{"http://cb.test/x job.assigned", "http://cb.test/x job.running"}, f.sentTo(`true`))
	w, err := f.store.InsertWebhook(f.ctx(), f.hook("*"))
	require.NoError(t, err)
	_, err = f.store.TestWebhook(f.ctx(), f.client, w.ID)
	require.NoError(t, err)
	other := f.submit()
	require.Len(t, f.deliverAll(), 5)
	f.checkInvariants()

	require.NoError(t, repo.Migrate(f.ctx(), f.url, 2))
	require.Equal(t, before, schema(t, f))
	require.Equal(t, "x", one[string](f, `SELECT string_agg(event_name, ' ') FROM client_events`), "not the test of a webhook")
	require.Equal(t, "jobs", one[string](f, `SELECT string_agg(endpoint, ' ') FROM idempotency_keys`))
	_, _, err = f.store.Cancel(f.ctx(), f.client, other)
	require.NoError(t, err)

	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, newest, schema(t, f))
	require.Zero(t, f.count("webhooks")+f.count("deliveries")+f.count("delivery_attempts"))
	f.subscribe("*")
	_, _, err = f.store.Cancel(f.ctx(), f.client, id)
	require.NoError(t, err)
	require.Len(t, f.deliverAll(), 2)
	f.checkInvariants()
}

func TestMigrateTenAtOnce(t *testing.T) {
	t.Parallel()
	f := setup(t)
	want := schema(t, f)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 0))
	f.exec(`DROP TABLE goose_db_version`)
	errs := make([]error, 10)
	inParallel(len(errs), func(i int) { errs[i] = repo.Migrate(f.ctx(), f.url, -1) })
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, want, schema(t, f))
	files, err := migrations.FS.ReadDir(".")
	require.NoError(t, err)
	require.Equal(t, 1+len(files), one[int](f, `SELECT count(*)::int FROM goose_db_version`), "the zeroth version and ours, once each")
	require.NoError(t, f.store.Ping(f.ctx()))
}

func TestMigrateWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	f := setup(t)
	unlock := f.lock(`SELECT pg_advisory_xact_lock($1)`, lock.DefaultLockID)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, repo.Migrate(ctx, f.url, 0), context.DeadlineExceeded)
	require.NoError(t, f.store.Ping(f.ctx()))
	unlock()
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 0))
}

func TestMigrateToTheNewestLeavesANewerSchemaAlone(t *testing.T) {
	t.Parallel()
	f := setup(t)
	before := schema(t, f)
	f.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, before, schema(t, f))
	require.NoError(t, f.store.Ping(f.ctx()), "it suits this program too")
}

func TestPingNeedsASchema(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(`DROP TABLE goose_db_version`)
	require.Equal(t, job.CodeDBError, job.CodeOf(f.store.Ping(f.ctx())))
}

func TestMigrateAndOpenRefuseABadURL(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, repo.Migrate(t.Context(), "postgres://%zz", -1), "database URL")
	_, err := repo.Open(repotest.Config(t, "port=nonsense"))
	require.ErrorContains(t, err, "database URL")
	require.Error(t, repo.Migrate(within(t, patience), "postgres://127.0.0.1:1/none", -1))
}

// What was written under the first schema has its places in the streams of
// clients under the second, in each job's order.
func TestMigrateGivesOldEventsTheirPlaces(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.at(job.Succeeded)
	f.at(job.Failed)
	waiting, key := f.submit(keyed("k")), newID()
	f.exec(`INSERT INTO idempotency_keys SELECT client_id, 'batch', key, request_hash, $1, NULL, created_at, expires_at
		FROM idempotency_keys`, key.String())
	emptied := f.at(job.Succeeded)
	f.exec(`UPDATE results SET body = NULL WHERE job_id = $1`, emptied.String())
	before := one[string](f, `SELECT jsonb_agg(to_jsonb(e) - 'client_id' - 'called_back' ORDER BY job_id, seq)::text FROM events e`)

	require.NoError(t, repo.Migrate(f.ctx(), f.url, 1))
	require.Equal(t, before, one[string](f, `SELECT jsonb_agg(to_jsonb(e) ORDER BY job_id, seq)::text FROM events e`))
	require.Equal(t, waiting.String(), one[string](f, `SELECT job_id::text FROM idempotency_keys`),
		"the first schema knows no keys of batches")
	require.Equal(t, 1, one[int](f, `SELECT count(*)::int FROM results`), "nor results without a body")
	// Labels of the first schema could run backwards.
	f.exec(`UPDATE events SET tx = '7' WHERE seq = 3`)

	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	f.exec(`DELETE FROM jobs WHERE job_id = $1`, emptied.String())
	f.exec(`DELETE FROM events WHERE job_id = $1`, emptied.String())
	f.exec(`DELETE FROM reports WHERE job_id = $1`, emptied.String())
	f.checkInvariants()
	f.claim(waiting, 1)
	require.Equal(t, f.places(), positions((&follower{f: f}).readAll(100)))
	f.checkInvariants()
}

// A dump that is restored into a younger server brings labels that no
// transaction there has come to.
func TestMigrateMendsARestoredDatabase(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.at(job.Failed)
	id := f.submit()
	f.clientEvent(f.db)
	f.exec(`UPDATE events SET tx = (tx::text::bigint + 1000000000000)::text::xid8 WHERE job_id = $1`, id.String())
	f.exec(`UPDATE jobs SET event_tx = (event_tx::text::bigint + 1000000000000)::text::xid8 WHERE job_id = $1`, id.String())
	r := &follower{f: f}
	require.Eventually(t, func() bool { r.read(100); return len(r.seen) == 6 }, patience, tick)
	require.Equal(t, job.Feed{Held: true}, f.feed(r.at, 100), "it would be for a long time")
	f.claim(id, 1)
	key := f.cursorKey()

	errs := make([]error, 4)
	inParallel(len(errs), func(i int) { errs[i] = repo.Migrate(f.ctx(), f.url, -1) })
	require.NoError(t, errors.Join(errs...))
	f.checkInvariants()
	seen := (&follower{f: f}).readAll(2)
	require.Equal(t, f.places(), positions(seen))
	require.Len(t, seen, 10)
	require.Equal(t, uint64(1), seen[9].Position.Tx)
	mended := f.cursorKey()
	require.NotEqual(t, key, mended, "a position that a client has kept is refused for good")
	require.Len(t, mended, len(key))

	f.exec(`UPDATE client_events SET tx = '1000000000000'`)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	_, _, err := f.store.Cancel(f.ctx(), f.client, id)
	require.NoError(t, err)
	seen = (&follower{f: f}).readAll(2)
	require.Equal(t, job.EventCanceled, seen[10].Name, "what comes is after what was")
	require.Equal(t, f.places(), positions(seen))
	f.checkInvariants()

	before, key := f.places(), f.cursorKey()
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, before, f.places(), "nothing more to mend")
	require.Equal(t, key, f.cursorKey())
}

func (f *fixture) cursorKey() []byte {
	f.t.Helper()
	key, err := f.store.CursorKey(f.ctx())
	require.NoError(f.t, err)
	return key
}

// A reader of a table, such as a dump, must not make every writer wait behind a
// migration that waits for it.
func TestMigrationDoesNotMakeWritersWait(t *testing.T) {
	t.Parallel()
	f := setup(t)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 3))
	reader, err := f.db.Begin(f.ctx())
	require.NoError(t, err)
	defer func() { _ = reader.Rollback(f.ctx()) }()
	_, err = reader.Exec(f.ctx(), `SELECT count(*) FROM deliveries`)
	require.NoError(t, err)
	migrated := make(chan error, 1)
	go func() { migrated <- repo.Migrate(f.ctx(), f.url, -1) }()
	require.Eventually(t, func() bool {
		return one[bool](f, `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'deliveries'::regclass)`)
	}, patience, 10*time.Millisecond, "the migration waits")
	for range 20 {
		f.submitBefore("")
	}
	require.NoError(t, reader.Rollback(f.ctx()))
	require.NoError(t, <-migrated)
	require.True(t, one[bool](f, `SELECT count(*) = 20 FROM jobs`))
}
