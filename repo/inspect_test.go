package repo_test

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func changed(t *testing.T, raw string, change func(*url.URL)) string {
	u := must(url.Parse(raw))(t)
	change(u)
	return u.String()
}

func TestInspectServer(t *testing.T) {
	t.Parallel()
	database := repotest.URL(t)
	i := must(repo.Inspect(t.Context(), database+"&pool_max_conns=33"))(t)
	require.Equal(t, map[string]string{
		"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off", "default_transaction_read_only": "off",
		"max_connections": "1000",
	}, i.Settings, "see repotest.Shared")
	require.GreaterOrEqual(t, i.Version, 140000)
	require.NotEmpty(t, i.VersionName)
	require.Equal(t, "UTF8", i.Encoding)
	require.False(t, i.IsStandby)
	require.Equal(t, 33, i.PoolSize)
	require.Equal(t, 997, i.Usable, "three connections are reserved for superusers")
	require.Positive(t, i.Connections)
	require.Equal(t, i.NeededVersion, i.SchemaVersion)
	require.Empty(t, i.MissingPrivileges)
	require.Positive(t, i.RoundTrip)
	require.Less(t, i.ClockOffset.Abs(), i.RoundTrip/2+time.Millisecond, "both sides have the same clock")
	require.Equal(t, &repo.State{SigningKeys: []job.SigningKey{}}, i.State)
	require.Equal(t, "forgerun", i.User)
	require.True(t, strings.HasSuffix(i.Place, must(url.Parse(database))(t).Path), i.Place)
}

func TestInspectState(t *testing.T) {
	f := setup(t)
	inspect := func() repo.State {
		i := must(repo.Inspect(f.ctx(), f.url))(t)
		require.NotNil(t, i.State)
		return *i.State
	}
	require.Equal(t, repo.State{Workers: 1, Slots: 1, SigningKeys: []job.SigningKey{}}, inspect())

	f.newWorker()
	f.subscribe("*")
	f.exec(`UPDATE jobs SET run_at = now() - interval '5 minutes' WHERE job_id = $1`, f.submit())
	keys := []job.SigningKey{{KID: "kid", Public: make([]byte, 32), Sealed: []byte("sealed")}}
	require.NoError(t, f.store.AddSigningKey(f.ctx(), keys[0], true, 0, 0))
	require.True(t, must(f.store.Lead(f.ctx(), newID(), time.Hour, 0))(t))
	state := inspect()
	require.InDelta(t, 5*time.Minute, state.OldestDue, float64(time.Minute))
	state.OldestDue = 0
	require.Equal(t, repo.State{Workers: 2, Slots: 2, HasLeader: true, HasWebhooks: true, SigningKeys: keys},
		state)

	ran := f.at(job.Running)
	state = inspect()
	require.Equal(t, 1, state.Held)
	require.True(t, state.Moving)
	f.exec(`UPDATE jobs SET started_at = now() - interval '5 minutes' WHERE job_id = $1`, ran)
	require.False(t, inspect().Moving)
	f.expireWorker(f.worker)
	f.exec(`UPDATE webhooks SET deleted_at = now()`)
	must(f.store.Lead(f.ctx(), newID(), 0, -2*time.Hour))(t)
	state = inspect()
	require.Equal(t, []bool{true, true}, []bool{state.HasLeader, state.LeaderBlocked})
	f.exec(`UPDATE maintenance_state SET leader_expires_at = '-infinity'`)
	f.exec(`DELETE FROM jobs WHERE state = 'QUEUED'`)
	require.Equal(t, repo.State{Workers: 1, Slots: 1, SigningKeys: keys}, inspect(), "ended processes do not count")

	// Inspect writes nothing, so it works on a read-only database.
	f.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$`)
	i := must(repo.Inspect(f.ctx(), f.url))(t)
	require.Equal(t, "on", i.Settings["default_transaction_read_only"])
	require.NotNil(t, i.State)
}

func TestInspectSchema(t *testing.T) {
	f := setup(t)
	needed := one[int64](f, `SELECT max(version_id) FROM goose_db_version`)
	for _, version := range []int64{needed - 1, needed + 7, needed} {
		f.exec(`UPDATE goose_db_version SET version_id = $1 WHERE id = (SELECT max(id) FROM goose_db_version)`, version)
		i := must(repo.Inspect(f.ctx(), f.url))(t)
		require.Equal(t, version, i.SchemaVersion)
		require.Equal(t, needed, i.NeededVersion)
		require.Equal(t, version == needed, i.State != nil, "an unknown schema is not read")
	}
	require.NoError(t, repo.Migrate(f.ctx(), f.url, 0))
	f.exec(`DROP TABLE goose_db_version`)
	i := must(repo.Inspect(f.ctx(), f.url))(t)
	require.Zero(t, i.SchemaVersion)
	require.Empty(t, i.MissingPrivileges)
}

func (f *fixture) newRole(options string) (name string) {
	name = "inspect_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	f.exec(`CREATE ROLE ` + name + ` LOGIN PASSWORD 'planted-secret' ` + options)
	f.t.Cleanup(func() {
		f.exec(`DROP OWNED BY ` + name)
		f.exec(`DROP ROLE ` + name)
	})
	return name
}

func TestInspectAsAnotherUser(t *testing.T) {
	f := setup(t)
	name := f.newRole("CONNECTION LIMIT 7")
	as := changed(t, f.url, func(u *url.URL) { u.User = url.UserPassword(name, "planted-secret") })

	i := must(repo.Inspect(f.ctx(), as))(t)
	require.Contains(t, i.MissingPrivileges, "SELECT on goose_db_version")
	require.Contains(t, i.MissingPrivileges, "DELETE on deliveries")
	require.NotContains(t, i.MissingPrivileges, "INSERT on goose_db_version")
	require.Zero(t, i.SchemaVersion, "the version cannot be read")
	require.Equal(t, "public", i.Schema)
	require.Equal(t, "CREATE on schema public", i.MigratorLacks)
	require.Nil(t, i.State)
	require.Equal(t, 7, i.Usable)
	require.Equal(t, name, i.User)

	f.exec(`GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ` + name)
	f.exec(`REVOKE UPDATE ON jobs FROM ` + name)
	i = must(repo.Inspect(f.ctx(), as))(t)
	require.Equal(t, []string{"UPDATE on jobs"}, i.MissingPrivileges)
	require.Equal(t, i.NeededVersion, i.SchemaVersion)

	f.exec(`GRANT UPDATE ON jobs TO ` + name)
	i = must(repo.Inspect(f.ctx(), as))(t)
	require.Empty(t, i.MissingPrivileges)
	require.NotNil(t, i.State)
}

func TestInspectObstacles(t *testing.T) {
	f := setup(t)
	name := f.newRole("CONNECTION LIMIT 0")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, but sends nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	closing := endingAtOnce(t)
	for _, c := range []struct {
		what  string
		to    func(*url.URL)
		is    error
		words string
	}{
		{"away", func(u *url.URL) { u.Host = "127.0.0.1:1" }, repo.ErrAway, ""},
		{"no such host", func(u *url.URL) { u.Host = "nowhere.invalid" }, repo.ErrAway, "nowhere.invalid is unknown"},
		{"silent", func(u *url.URL) { u.Host = silent.Addr().String() }, repo.ErrSilent, ""},
		{"silent, asked for TLS first", func(u *url.URL) { u.Host, u.RawQuery = silent.Addr().String(), "" }, repo.ErrSilent, ""},
		{"closes at once", func(u *url.URL) { u.Host = closing }, repo.ErrClosed, ""},
		{"closes at once, asked for TLS first", func(u *url.URL) { u.Host, u.RawQuery = closing, "" }, repo.ErrClosed, ""},
		{"wrong password", func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "planted-secret") }, repo.ErrLogin,
			"password authentication failed"},
		{"no such database", func(u *url.URL) { u.Path = "/nowhere" }, repo.ErrNoDatabase, `"nowhere" does not exist`},
		{"no TLS there", func(u *url.URL) { u.RawQuery = "sslmode=require" }, repo.ErrTLS, ""},
		{"too many sessions", func(u *url.URL) { u.User = url.UserPassword(name, "planted-secret") }, repo.ErrBusy, "too many connections"},
		{"bad port", func(u *url.URL) { u.RawQuery += "&port=planted-secret" }, repo.ErrBadURL, ""},
		{"bad setting", func(u *url.URL) { u.RawQuery += "&no_such_setting=1" }, repo.ErrUnread, "no_such_setting"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			_, err := repo.Inspect(within(t, testkit.Patience), changed(t, f.url, c.to))
			require.ErrorIs(t, err, c.is)
			require.ErrorContains(t, err, c.words)
			require.NotContains(t, err.Error(), "planted-secret")
			require.NotContains(t, err.Error(), "failed to connect", "the driver's message is not shown")
		})
	}
}

func endingAtOnce(t *testing.T) string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}
