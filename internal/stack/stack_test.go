package stack

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func TestFaultsOnRealServers(t *testing.T) {
	t.Parallel()
	s := startReal(t, Options{Faults: true, Clock: true})
	eachFault(t, s)
	clockFaults(t, s)
	closeDuringFaults(t, s)
}

func eachFault(t *testing.T, s *Stack) {
	require.NoError(t, s.Scale(testContext(t), 1))
	url := s.URL

	redis, postgres := s.servers.Redis.PID(), s.servers.Postgres.PID()
	require.Equal(t, "redis", injectFault(testContext(t), t, s, "redis", 1).Target)
	require.Equal(t, "postgres", injectFault(testContext(t), t, s, "postgres", 1).Target)
	require.NotEqual(t, redis, s.servers.Redis.PID())
	require.NotEqual(t, postgres, s.servers.Postgres.PID())
	require.NotZero(t, s.servers.Redis.PID())
	require.NotZero(t, s.servers.Postgres.PID())
	requireHealthyAPI(t, s)

	ctx := testContext(t)
	require.NoError(t, s.servers.Redis.Do(ctx, "SET mine 1"))
	injectFault(testContext(t), t, s, "flush", 1)
	require.Equal(t, "$-1", ask(t, s.servers.Redis.server, "GET mine")[0])

	// A fault such as redis-full lasts until its context is canceled.
	short, cancel := context.WithCancel(ctx)
	full := make(chan Fault)
	go func() { full <- injectFault(short, t, s, "redis-full", 1) }()
	testkit.Eventually(t, "writes are refused", func() bool {
		err := s.servers.Redis.Do(ctx, "SET mine 1")
		return err != nil && err.Error() != ""
	})
	cancel()
	require.Equal(t, "redis", (<-full).Target)
	require.NoError(t, s.servers.Redis.Do(ctx, "SET mine 1"))

	kinds := map[string]bool{}
	for seed := uint64(1); len(kinds) < 3; seed++ {
		require.Less(t, seed, uint64(50), "%v", kinds)
		f := injectFault(testContext(t), t, s, "kill", seed)
		kinds[f.Target] = true
		require.Len(t, s.MetricsURLs(), 3)
	}
	require.Equal(t, url, s.URL)
	requireHealthyAPI(t, s)

	for _, name := range []string{"cut", "slow"} {
		f := injectFault(testContext(t), t, s, name, 1)
		require.Contains(t, []string{"postgres", "redis", "api"}, f.Target)
		require.Positive(t, f.Count)
	}
	require.NoError(t, s.Heal(ctx))
	requireHealthyAPI(t, s)
}

func TestWithoutFaults(t *testing.T) {
	t.Parallel()
	s := startReal(t, Options{TimeScale: 0.5, Concurrency: 7, Env: map[string]string{"FORGERUN_MAX_RETRIES": "5"}})
	for _, part := range []struct {
		name string
		run  func(*testing.T, *Stack)
	}{
		{"addresses are direct", addressesAreDirect},
		{"external servers get no faults", externalServersGetNoFaults},
		{"dead servers are restarted", deadServersAreRestarted},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s) })
	}
}

func addressesAreDirect(t *testing.T, s *Stack) {
	require.Empty(t, s.faulty())
	requireHealthyAPI(t, s)
	require.Equal(t, s.DatabaseURL, s.env["FORGERUN_DATABASE_URL"])
	require.Equal(t, s.RedisURL, s.env["FORGERUN_REDIS_URL"])
	require.Equal(t, s.URL, s.env["FORGERUN_PUBLIC_URL"])
	require.Equal(t, []string{"0.5", "7", "5"}, []string{
		s.env["FORGERUN_TIME_SCALE"], s.env["FORGERUN_WORKER_CONCURRENCY"], s.env["FORGERUN_MAX_RETRIES"],
	})
	direct, err := s.ReceiverURL("http://127.0.0.1:1/x")
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:1/x", direct)
	url := s.URL
	s.apis[0].living().Kill()
	requireHealthyAPI(t, s)
	require.Equal(t, url, s.URL)
	c, err := ParseChaos("slow=1s")
	require.NoError(t, err)
	require.ErrorContains(t, c.Run(testContext(t), s, 1, nil), "no connection goes through a proxy")
}

func externalServersGetNoFaults(t *testing.T, theirs *Stack) {
	ours := startReal(t, Options{DatabaseURL: theirs.DatabaseURL, RedisURL: theirs.RedisURL, Faults: true})
	require.Empty(t, ours.URL)
	require.NoError(t, ours.Scale(testContext(t), 1))
	for _, name := range []string{"flush", "redis", "redis-pause", "redis-full", "postgres"} {
		c, err := ParseChaos(name + "=1s")
		require.NoError(t, err)
		require.ErrorContains(t, c.Run(testContext(t), ours, 1, nil), "only into servers that it started")
	}
	require.Equal(t, "worker-1", injectFault(testContext(t), t, ours, "kill", 1).Target)
	require.NoError(t, ours.Close())
	requireHealthyAPI(t, theirs)
}

func deadServersAreRestarted(t *testing.T, s *Stack) {
	require.NoError(t, s.servers.Redis.Kill())
	require.NoError(t, s.servers.Postgres.Kill())
	testkit.Eventually(t, "both are back", func() bool { return s.servers.Redis.PID() != 0 && s.servers.Postgres.PID() != 0 })
	require.NoError(t, s.Heal(testContext(t)))
}

func TestBadConfigurationStopsTheStart(t *testing.T) {
	t.Parallel()
	dir, program := tempDir(t), testkit.Program(t, "forgerun")
	_, err := Start(testContext(t), Options{
		Forgerun: program, Dir: dir, Faults: true, Env: map[string]string{"FORGERUN_MAX_RETRIES": "many"},
	})
	require.ErrorContains(t, err, "FORGERUN_MAX_RETRIES")
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "logs")}, left)
}

func closeDuringFaults(t *testing.T, s *Stack) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "received") }))
	t.Cleanup(receiver.Close)
	url, err := s.ReceiverURL(receiver.URL)
	require.NoError(t, err)
	require.NotEqual(t, receiver.URL, url)
	response, err := http.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "received", string(body))
	_ = response.Body.Close()
	require.True(t, slices.ContainsFunc(s.faulty(), func(p *proxy) bool { return p.name == "receiver" }))

	c, err := ParseChaos("postgres=100ms,redis=100ms,kill=100ms,stop=100ms,stall=100ms")
	require.NoError(t, err)
	began := make(chan struct{})
	var once sync.Once
	ended := make(chan error)
	go func() {
		ended <- c.Run(testContext(t), s, 1, func(Fault) { once.Do(func() { close(began) }) })
	}()
	<-began
	require.NoError(t, s.Close())
	require.NoError(t, <-ended)
	for _, m := range s.members() {
		<-m.done
	}
	require.Zero(t, s.servers.Postgres.PID())
	require.Zero(t, s.servers.Redis.PID())
	left, err := filepath.Glob(filepath.Join(s.o.Dir, "*"))
	require.NoError(t, err)
	require.Equal(t, []string{s.Logs()}, left)
	require.NoDirExists(t, s.servers.folder.dir)
	for _, name := range []string{"api-1", "deliverer-1", "migrate", "postgres", "redis"} {
		require.FileExists(t, filepath.Join(s.Logs(), name+".log"))
	}
}

func injectFault(ctx context.Context, t *testing.T, s *Stack, name string, seed uint64) Fault {
	t.Helper()
	f, ok := kindNamed(t, name).do(ctx, s, seed)
	require.True(t, ok, "%s had no target", name)
	require.NoError(t, f.Err)
	require.Equal(t, name, f.Kind)
	require.False(t, f.Until.Before(f.At))
	return f
}

func kindNamed(t *testing.T, name string) faultKind {
	t.Helper()
	i := slices.IndexFunc(kinds, func(k faultKind) bool { return k.name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return kinds[i]
}
