package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// emptyDatabase makes a database without any schema on the shared server.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	other := repotest.URL(t)
	admin := openPool(t, other)
	name := "forgerun_empty_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err := admin.Exec(t.Context(), `CREATE DATABASE `+name+` TEMPLATE template0`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), `DROP DATABASE `+name+` WITH (FORCE)`)
		require.NoError(t, err)
	})
	u, err := url.Parse(other)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

func TestTenProcessesStartOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	s := newStackOn(t, emptyDatabase(t))
	api, worker := s.start("api"), s.start("worker")
	api.waitAPI()
	nobody := &user{s: s}
	require.Equal(t, http.StatusServiceUnavailable, nobody.call(api, "GET", "/readyz", "").status, "there is no schema yet")
	var migrations []*proc
	for range 8 {
		migrations = append(migrations, s.start("migrate"))
	}
	for _, m := range migrations {
		require.Zero(t, m.exitCode(), m.log)
	}
	require.Equal(t, 1, s.count(`SELECT count(*) FROM maintenance_state`))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM goose_db_version WHERE version_id = 1`))
	worker.logged("worker registered")
	require.Equal(t, http.StatusOK, nobody.call(api, "GET", "/readyz", "").status)
	u := s.newUser(api)
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))
	s.checkInvariants()
}

func TestMigrateDownAndUp(t *testing.T) {
	t.Parallel()
	s := newStackOn(t, emptyDatabase(t))
	newest := repo.NewestSchema()
	for _, step := range []struct {
		args    []string
		version int64
	}{
		{[]string{"migrate"}, newest}, {[]string{"migrate", "-to", "3"}, 3}, {[]string{"migrate", "-to", "0"}, 0},
		{[]string{"migrate", "up"}, newest},
	} {
		p := startProc(t, s.env, s.knownSecrets, step.args...)
		require.Zero(t, p.exitCode(), step.args)
		require.Equal(t, fmt.Sprintf("The schema is at version %d.\n", step.version), p.stdout.String())
	}
	require.Equal(t, 1, s.count(`SELECT count(*) FROM maintenance_state`))
}
