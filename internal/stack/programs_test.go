package stack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func fakeProgram(t *testing.T, dir, name string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755))
}

func TestErrorNamesMissingServers(t *testing.T) {
	t.Parallel()
	m := machine{programDirs: []string{t.TempDir(), "/nonexistent/*/bin"}}
	o := ServerOptions{Dir: filepath.Join(t.TempDir(), "never made"), machine: &m}

	_, err := StartPostgres(testContext(t), o)
	require.ErrorIs(t, err, ErrNotInstalled)
	require.ErrorContains(t, err, "apt-get install postgresql")
	require.ErrorContains(t, err, "brew install postgresql@17")
	_, err = StartRedis(testContext(t), o)
	require.ErrorIs(t, err, ErrNotInstalled)
	require.ErrorContains(t, err, "redis-server")
	require.ErrorContains(t, err, "valkey-server")
	_, err = tempIn(testContext(t), t.TempDir(), &o, &o)
	require.ErrorIs(t, err, ErrNotInstalled)
	require.NoDirExists(t, o.Dir)
}

func TestProgramsAreFoundInOrder(t *testing.T) {
	t.Parallel()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	for _, version := range []string{"9", "15", "17"} {
		for _, name := range []string{"postgres", "initdb"} {
			fakeProgram(t, at("lib", version, "bin"), name)
		}
	}
	fakeProgram(t, at("path"), "postgres")
	require.NoError(t, os.MkdirAll(at("links"), 0o755))
	for _, name := range []string{"postgres", "initdb"} {
		require.NoError(t, os.Symlink(at("lib", "15", "bin", name), at("links", name)))
	}
	m := machine{programDirs: []string{"relative", at("path"), at("links"), at("lib", "*", "bin")}}
	require.Equal(t, []string{at("links"), at("lib", "17", "bin"), at("lib", "15", "bin"), at("lib", "9", "bin")},
		m.find("postgres", "initdb"))
	require.Equal(t, 17, versionInPath("/opt/homebrew/opt/postgresql@17/bin"))
	require.Equal(t, 16, versionInPath("/usr/pgsql-16/bin"))

	// redis-server is a link to redis-check-rdb, which acts as a server only under the link's name. So findRedis must not resolve the link.
	fakeProgram(t, at("redis"), "redis-check-rdb")
	require.NoError(t, os.Symlink("redis-check-rdb", at("redis", "redis-server")))
	fakeProgram(t, at("redis"), "valkey-server")
	m = machine{programDirs: []string{at("redis")}}
	require.Equal(t, at("redis", "redis-server"), m.findRedis())
	require.NoError(t, os.Remove(at("redis", "redis-server")))
	require.Equal(t, at("redis", "valkey-server"), m.findRedis())
}

func TestClusterDecidesTheVersion(t *testing.T) {
	t.Parallel()
	data, bins := t.TempDir(), []string{"/usr/lib/postgresql/17/bin", "/usr/bin", "/usr/lib/postgresql/15/bin"}
	require.Equal(t, bins[0], chooseVersion(bins, data), "no cluster yet")
	for version, want := range map[string]string{"17\n": bins[0], "15\n": bins[2], "14\n": bins[0]} {
		require.NoError(t, os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte(version), 0o600))
		require.Equal(t, want, chooseVersion(bins, data))
	}
}
