package repo_test

import (
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3/lock"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (f *fixture) inSchema(role, schema string) string {
	return changed(f.t.(*testing.T), f.url, func(u *url.URL) {
		u.User = url.UserPassword(role, "planted-secret")
		q := u.Query()
		q.Set("search_path", schema)
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	})
}

// The role needs no privilege to create schemas.
func TestInstallationsInSchemasOfOneDatabase(t *testing.T) {
	f := setup(t)
	role := f.newRole("")
	for n, schema := range []string{"one", `"$user", pg_catalog, "Two, quoted"`} {
		f.exec(`CREATE SCHEMA ` + []string{"one", `"Two, quoted"`}[n] + ` AUTHORIZATION ` + role)
		own := f.inSchema(role, schema)
		if n == 1 { // tables cannot be created if pg_catalog is the first schema
			require.NoError(t, repo.Migrate(f.ctx(), f.inSchema(role, `"Two, quoted"`), -1))
		} else {
			require.NoError(t, repo.Migrate(f.ctx(), own, -1))
		}
		s := repotest.OpenURL(t, own, asTestbed)
		require.NoError(t, s.Ping(f.ctx()))
		ahead := time.Duration(n+1) * 24 * time.Hour
		move(t, s, advance(ahead))
		now, precise := shown(t, s.Pool())
		require.WithinDuration(t, time.Now().Add(ahead), now, testkit.Patience)
		require.WithinDuration(t, time.Now().Add(ahead), precise, testkit.Patience)
	}
	first := repotest.OpenURL(t, f.inSchema(role, "one"), asTestbed)
	now, _ := shown(t, first.Pool())
	require.WithinDuration(t, time.Now().Add(24*time.Hour), now, testkit.Patience, "a move in another schema has no effect")
	require.Zero(t, f.count("testbed_clock"))

	// Locks of another installation do not block this one.
	unlock := f.lock(`SELECT pg_advisory_xact_lock(hashtextextended('claims', 'jobs'::regclass::oid::bigint)),
		pg_advisory_xact_lock(hashtextextended('bulk operations', 'jobs'::regclass::oid::bigint)),
		pg_advisory_xact_lock(` + strconv.FormatInt(lock.DefaultLockID, 10) + `::bigint # hashtext('public'))`)
	defer unlock()
	own := setupAt(t, f.inSchema(role, "one"), maxHeld(1))
	own.claim(own.submit(), 1)
	own.bulk(job.BulkCancel, everything)
	require.NoError(t, repo.Migrate(f.ctx(), f.inSchema(role, "one"), 0), "the schema was removed")
	require.NoError(t, repo.Migrate(f.ctx(), f.inSchema(role, "one"), -1))
}

func TestMigrateNamesMissingPrivilegesFirst(t *testing.T) {
	f := setup(t)
	role := f.newRole("")
	f.exec(`CREATE SCHEMA closed`)
	f.exec(`GRANT USAGE ON SCHEMA closed TO ` + role)
	require.ErrorContains(t, repo.Migrate(f.ctx(), f.inSchema(role, "closed"), -1), "lacks CREATE on schema closed")
	require.ErrorContains(t, repo.Migrate(f.ctx(), f.inSchema(role, "absent"), -1), "lacks a schema to create tables in")
	f.exec(`GRANT CREATE ON SCHEMA public TO ` + role)
	require.ErrorContains(t, repo.Migrate(f.ctx(), f.inSchema(role, "public"), -1), "lacks ownership of table")
	require.Zero(t, one[int](f, `SELECT count(*) FROM pg_class WHERE relnamespace = 'closed'::regnamespace`))
}
