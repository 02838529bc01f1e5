package main

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

// Two installations share a database and a Redis server. Each has its own schema, its own Redis database, and a user with rights only in
// that schema. Both run jobs at the same time, and neither sees the other's jobs.
func TestTwoInstallationsInOneDatabase(t *testing.T) {
	t.Parallel()
	shared := repotest.URL(t)
	admin := openPool(t, shared)
	exec := func(sql string) {
		_, err := admin.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	var redisURL string
	var installed []*stack
	for n, schema := range []string{`blue`, `"Green app"`} {
		role := "installed_" + strings.ReplaceAll(uuid.NewString(), "-", "")
		exec(`CREATE ROLE ` + role + ` LOGIN PASSWORD 'planted-secret'`)
		t.Cleanup(func() {
			_, err := admin.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
			require.NoError(t, err)
		})
		exec(`CREATE SCHEMA ` + schema)
		exec(`GRANT USAGE ON SCHEMA ` + schema + ` TO ` + role)
		u, err := url.Parse(shared)
		require.NoError(t, err)
		u.User = url.UserPassword(role, "planted-secret")
		q := u.Query()
		q.Set("search_path", schema)
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
		s := newStackOn(t, u.String(), withTestbed)
		if n == 0 {
			redisURL = s.redis.URL()
		}
		options, err := redis.ParseURL(redisURL)
		require.NoError(t, err)
		options.DB = n + 1
		s.rdb = redis.NewClient(options)
		t.Cleanup(func() { _ = s.rdb.Close() })
		s.env["FORGERUN_REDIS_URL"] = strings.TrimSuffix(redisURL, "0") + strconv.Itoa(options.DB)

		_, report := s.doctor(nil, "worker")
		require.Contains(t, report, role+" cannot migrate: it lacks CREATE on schema "+schema)
		require.Contains(t, report, `GRANT CREATE on schema `+schema+` TO "`+role+`"`)
		code, _, stderr := runWith(t, s.env, "migrate")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, "lacks CREATE on schema")
		exec(`GRANT CREATE on schema ` + schema + ` TO "` + role + `"`) // as doctor advises
		code, _, stderr = runWith(t, s.env, "migrate")
		require.Zero(t, code, stderr)
		installed = append(installed, s)
	}
	for _, s := range installed {
		s.startLeader()
		s.startWorker()
	}
	for n, s := range installed {
		api := s.procs[0]
		_, report := s.doctor(nil, "worker")
		require.Contains(t, report, "may read and write all tables")
		u := s.newUser(api)
		ids := u.submitMany(api, 20, execute("SUCCESS_FAST"))
		later := u.submit(api, deferred(0))
		s.await("SUCCEEDED", append(ids, later)...)
		other := installed[1-n]
		require.Zero(t, other.count(`SELECT count(*) FROM jobs WHERE job_id = ANY($1::uuid[])`, ids))
		require.Equal(t, 401, u.call(other.procs[0], "GET", "/v1/jobs", "").status, "the other installation does not know the key")
	}
	ahead := installed[0].newUser(installed[0].procs[0])
	ahead.moveClock(installed[0].procs[0], `{"advance":"48h"}`)
	require.Zero(t, installed[1].count(`SELECT count(*) FROM testbed_clock`), "each installation has its own clock")
	require.NoError(t, installed[0].rdb.FlushDB(t.Context()).Err())
	for _, s := range installed {
		u := s.newUser(s.procs[0])
		s.await("SUCCEEDED", u.submitMany(s.procs[0], 20, execute("SUCCESS_FAST"))...)
		s.checkInvariants()
	}
	var public int
	require.NoError(t, admin.QueryRow(t.Context(), `SELECT count(*) FROM public.jobs`).Scan(&public))
	require.Zero(t, public)
}
