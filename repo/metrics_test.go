package repo_test

import (
	"fmt"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (f *fixture) scrape() map[string]float64 {
	families := must(f.registry.Gather())(f.t)
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += fmt.Sprintf("{%s=%s}", l.GetName(), l.GetValue())
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// freezer is a TCP proxy between a store and its server. It can stop passing data, like a server that hangs.
type freezer struct {
	net.Listener
	frozen atomic.Bool
	thaw   chan struct{}
}

func freeze(t *testing.T, server string) (*freezer, string) {
	u := must(url.Parse(server))(t)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = listener.Close() })
	z, behind := &freezer{Listener: listener, thaw: make(chan struct{})}, u.Host
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", behind)
			if err != nil {
				_ = client.Close()
				continue
			}
			go z.pass(client, server)
			go z.pass(server, client)
		}
	}()
	u.Host = listener.Addr().String()
	return z, u.String()
}

func (z *freezer) pass(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if z.frozen.Load() {
			<-z.thaw
		}
		if _, writeErr := to.Write(buffer[:n]); err != nil || writeErr != nil {
			return
		}
	}
}

func TestScrapesWhilePostgresHangs(t *testing.T) {
	t.Parallel()
	z, through := freeze(t, repotest.URL(t))
	f := &fixture{t: t, url: through, client: newID(), registry: prometheus.NewRegistry()}
	f.store = repotest.OpenURL(t, through, func(c *repo.Config) { c.Registry, c.Timeout = f.registry, testkit.Patience })
	f.submit()
	require.EqualValues(t, 1, f.scrape()["database_up"])

	z.frozen.Store(true)
	thaw := sync.OnceFunc(func() { z.frozen.Store(false); close(z.thaw) })
	t.Cleanup(thaw)
	inParallel(10, func(int) {
		values := f.scrape()
		if values["database_up"] != 0 || values["group_commit_items{operation=insert}"] != 1 {
			t.Error(values)
		}
	})
	thaw()
	testkit.Eventually(t, "Postgres is up again", func() bool { return f.scrape()["database_up"] == 1 })
	f.submit()
}

func TestScrapesKeepTheirConnection(t *testing.T) {
	t.Parallel()
	z, through := freeze(t, repotest.URL(t))
	f := setupAt(t, through)
	disconnect := func() {
		f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND application_name = $1`, t.Name())
	}
	require.EqualValues(t, 1, f.scrape()["database_up"])
	disconnect()
	require.EqualValues(t, 1, f.scrape()["database_up"], "it connects again")
	require.NoError(t, z.Close())
	require.EqualValues(t, 1, f.scrape()["database_up"])
	disconnect()
	require.Zero(t, f.scrape()["database_up"])
	f.store.Close()
	require.Zero(t, f.scrape()["database_up"])
}
