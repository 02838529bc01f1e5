package repo_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/migrations"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func schema(t *testing.T, f *fixture) []string {
	rows := must(f.db.Query(f.ctx(), `
		SELECT format('column %s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns
			WHERE table_schema = 'public'
		UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint
			WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT format('option %s %s', relname, reloptions) FROM pg_class WHERE relnamespace = 'public'::regnamespace
			AND reloptions IS NOT NULL
		UNION ALL SELECT format('storage %s.%s %s', attrelid::regclass, attname, attstorage) FROM pg_attribute
			WHERE attrelid = to_regclass('results') AND attnum > 0
		ORDER BY 1`))(t)
	return must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
}

// The migrations go down version by version and up again, with rows in all tables. Each version has the same schema in both directions.
func TestMigrateDownAndUpAgain(t *testing.T) {
	f := setup(t)
	require.NoError(t, f.store.Ping(f.ctx()))
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1), "the schema is already at this version")
	f.fill(f.client, "6")
	newest := one[int](f, `SELECT max(version_id)::int FROM goose_db_version`)
	schemas := map[int][]string{newest: schema(t, f)}
	for version := newest - 1; version >= 0; version-- {
		require.NoError(t, repo.Migrate(f.ctx(), f.url, int64(version)))
		schemas[version] = schema(t, f)
		if version >= 3 { // migration 00003_jobs creates the table jobs
			require.Equal(t, 6, f.count("jobs"), "the jobs stay")
		}
	}
	require.Equal(t, "goose_db_version", one[string](f, `SELECT string_agg(tablename, ' ') FROM pg_tables WHERE schemaname = 'public'`))
	require.Zero(t, f.count(`pg_proc WHERE pronamespace = 'public'::regnamespace`))
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 0), "the schema is already at this version")
	err := f.store.Ping(f.ctx())
	require.Equal(t, job.CodeConfigInvalid, job.CodeOf(err))
	require.ErrorContains(t, err, "version 0")

	for version := 1; version <= newest; version++ {
		require.NoError(t, repo.Migrate(f.ctx(), f.url, int64(version)))
		require.Equal(t, schemas[version], schema(t, f), "version %d", version)
	}
	require.NoError(t, f.store.Ping(f.ctx()))
	f.submit()
	f.checkInvariants()
}

func TestMigrateTenAtOnce(t *testing.T) {
	f := setup(t)
	want := schema(t, f)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 0))
	f.exec(`DROP TABLE goose_db_version`)
	require.Equal(t, job.CodeDBError, codeOf(f.store.Ping(f.ctx())))
	f.atOnce(10, func(int) error { return repo.Migrate(f.ctx(), f.url, -1) })
	require.Equal(t, want, schema(t, f))
	files := must(migrations.FS.ReadDir("."))(t)
	require.Equal(t, 1+len(files), f.count("goose_db_version"), "version 0 and each migration once")
	require.NoError(t, f.store.Ping(f.ctx()))
}

func TestMigrateToTheNewestKeepsANewerSchema(t *testing.T) {
	f := setup(t)
	before := schema(t, f)
	f.exec(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)`)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, before, schema(t, f))
	require.NoError(t, f.store.Ping(f.ctx()), "a newer schema works too")
}

func TestSettingsOfOtherPrograms(t *testing.T) {
	f := setup(t)
	want := schema(t, f)
	for name, value := range map[string]string{
		"standard_conforming_strings": "off", "transform_null_equals": "on", "array_nulls": "off", "datestyle": "SQL, DMY",
		"intervalstyle": "iso_8601", "default_transaction_isolation": "serializable",
		"statement_timeout": "100", "idle_in_transaction_session_timeout": "1", "escape_string_warning": "on", "timezone": "Asia/Kathmandu",
		"client_min_messages": "error", "client_encoding": "LATIN1", "backslash_quote": "on", "quote_all_identifiers": "on",
	} {
		f.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET ` + name + ` = %L', current_database(), '` + value + `'); END $$`)
	}
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 0))
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, want, schema(t, f))
	store := must(repo.Open(repotest.Config(t, f.url)))(t)
	t.Cleanup(store.Close)
	require.NoError(t, store.Ping(f.ctx()))
	f.store = store
	f.submit()
	f.checkInvariants()
}

// A schema from before version 0.1.0 has other migration numbers and no function schema_since.
func TestMigrateRefusesAFormerSchema(t *testing.T) {
	f := setup(t)
	f.exec(`DROP FUNCTION schema_since()`)
	before, newest := schema(t, f), repo.NewestSchema()
	for _, version := range []int64{2 * newest, newest, 1} {
		f.exec(`DELETE FROM goose_db_version WHERE version_id > 0`)
		f.exec(`INSERT INTO goose_db_version (version_id, is_applied) SELECT generate_series(1, $1::bigint), true`, version)
		const refusal = "he database was made by a program before version 0.1.0 and cannot be migrated: use a new, empty database"
		for _, to := range []int64{-1, 0, newest} {
			require.EqualError(t, repo.Migrate(f.ctx(), f.url, to), "t"+refusal)
		}
		err := f.store.Ping(f.ctx())
		require.Equal(t, job.CodeConfigInvalid, job.CodeOf(err))
		require.ErrorContains(t, err, "T"+refusal+".", "no role serves a former schema")
		i := must(repo.Inspect(f.ctx(), f.url))(t)
		require.True(t, i.FormerSchema)
		require.Nil(t, i.State)
	}
	require.Equal(t, before, schema(t, f))
}

// An unreadable URL may contain a password anywhere, so it is not quoted.
func TestMigrateAndOpenRefuseABadURL(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		repo.Migrate(t.Context(), "postgres://me:planted-secret@%zz", -1), errOf(repo.Open(repotest.Config(t, "password=planted-secret port=x"))),
	} {
		require.ErrorIs(t, err, repo.ErrBadURL)
		require.NotContains(t, err.Error(), "planted")
	}
	require.Error(t, repo.Migrate(within(t, testkit.Patience), "postgres://127.0.0.1:1/none", -1))
}

func TestMigrateRepairsARestoredDatabase(t *testing.T) {
	f := setup(t)
	f.at(job.Failed)
	id := f.submit()
	f.clientEvent(f.db)
	f.exec(`UPDATE events SET tx = (tx::text::bigint + 1000000000000)::text::xid8 WHERE job_id = $1`, id.String())
	f.exec(`UPDATE jobs SET event_tx = (event_tx::text::bigint + 1000000000000)::text::xid8 WHERE job_id = $1`, id.String())
	r := &follower{f: f}
	testkit.Eventually(t, "the feed shows what is there", func() bool { r.read(100); return len(r.seen) == 6 })
	require.Equal(t, job.Feed{Held: true}, f.feed(r.at, 100), "the feed is held")
	f.claim(id, 1)
	key := f.cursorKey()

	f.atOnce(4, func(int) error { return repo.Migrate(f.ctx(), f.url, -1) })
	f.checkInvariants()
	seen := (&follower{f: f}).readAll(2)
	require.Equal(t, f.places(), positions(seen))
	require.Len(t, seen, 10)
	require.Equal(t, uint64(1), seen[9].Position.Tx)
	mended := f.cursorKey()
	require.NotEqual(t, key, mended, "positions that clients have stored become invalid")
	require.Len(t, mended, len(key))

	f.exec(`UPDATE client_events SET tx = '1000000000000'`)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	f.cancel(id)
	seen = (&follower{f: f}).readAll(2)
	require.Equal(t, job.EventCanceled, seen[10].Name, "new events follow the old ones")
	require.Equal(t, f.places(), positions(seen))
	f.checkInvariants()

	before, key := f.places(), f.cursorKey()
	require.NoError(t, repo.Migrate(f.ctx(), f.url, -1))
	require.Equal(t, before, f.places(), "nothing is left to repair")
	require.Equal(t, key, f.cursorKey())
}

func (f *fixture) cursorKey() []byte { return must(f.store.CursorKey(f.ctx()))(f.t) }

func TestMigrationDoesNotBlockWriters(t *testing.T) {
	f := setup(t)
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 10)) // a migration down to version 9 locks jobs, because it removes a trigger
	unlock := f.lock(`SELECT count(*) FROM jobs`)
	migrated := begin(func() error { return repo.Migrate(f.ctx(), f.url, 9) })
	f.await(`SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'jobs'::regclass)`)
	f.submitted(20)
	unlock()
	require.NoError(t, <-migrated)
	require.Equal(t, 20, f.countJobs())
}
