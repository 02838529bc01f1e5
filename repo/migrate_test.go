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
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// schema describes what a database holds besides its data.
func schema(t *testing.T, f *fixture) []string {
	t.Helper()
	rows, err := f.db.Query(f.ctx(), `
		SELECT format('column %s.%s %s %s %s', table_name, column_name, data_type, is_nullable, column_default) FROM information_schema.columns WHERE table_schema = 'public'
		UNION ALL SELECT format('constraint %s %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace = 'public'::regnamespace
		UNION ALL SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'
		UNION ALL SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace
		UNION ALL SELECT format('option %s %s', relname, reloptions) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL
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
	require.Equal(t, 2, one[int](f, `SELECT count(*)::int FROM goose_db_version`), "the zeroth version and ours, once each")
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
	err := f.store.Ping(f.ctx())
	require.Equal(t, job.CodeConfigInvalid, job.CodeOf(err))
	require.ErrorContains(t, err, "99999")
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
