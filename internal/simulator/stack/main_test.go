package stack

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/testkit"
)

// TestMain is also the program that the quick tests supervise: one that says it
// is ready and knows no store.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && (os.Args[1] == "worker" || os.Args[1] == "api"):
		os.Exit(beFake(os.Getenv("FORGERUN_FAKE")))
	default:
		code := m.Run()
		testkit.RemovePrograms()
		os.Exit(code)
	}
}

func beFake(manner string) int {
	switch manner {
	case "refuse":
		fmt.Println("bad configuration: FORGERUN_FAKE must not be refuse")
		return 2
	case "crash":
		fmt.Println("something is missing")
		return 1
	}
	l, err := net.Listen("tcp", os.Getenv("FORGERUN_ADMIN_ADDR"))
	if err != nil {
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { _ = http.Serve(l, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) }()
	<-ctx.Done()
	return 0
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// startReal starts a stack of the real program and real servers.
func startReal(t *testing.T, o Options) *Stack {
	t.Helper()
	o.Forgerun, o.Lease = testkit.Program(t, "forgerun"), time.Second
	return startStack(t, o)
}

// startFake starts a stack that has nothing but fake workers.
func startFake(t *testing.T, manner string, env ...string) *Stack {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	o := Options{Forgerun: self, DatabaseURL: "postgres://nowhere", RedisURL: "redis://nowhere"}
	o.Env = map[string]string{"FORGERUN_FAKE": manner}
	for i := 0; i < len(env); i += 2 {
		o.Env[env[i]] = env[i+1]
	}
	return startStack(t, o)
}

func startStack(t *testing.T, o Options) *Stack {
	t.Helper()
	dir, err := devstack.MkdirTemp("forgerun-simulator-stack-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	o.Dir = dir
	messages := &buffer{}
	o.Log = messages
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(messages.String())
		}
	})
	s, err := Start(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() }) // tests of Close look at its error
	return s
}

// buffer is what a stack says, readable meanwhile.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// pids are the processes of the stack that run now, servers included.
func pids(s *Stack) []int {
	var all []int
	for _, m := range s.members() {
		if p := m.living(); p != nil {
			all = append(all, p.PID())
		}
	}
	if s.postgres != nil {
		all = append(all, s.postgres.PID(), s.redis.PID())
	}
	return all
}

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process %d", pid)
	}
}

// requireAnswers asks the API for its own health.
func requireAnswers(t *testing.T, s *Stack) {
	t.Helper()
	testkit.Eventually(t, "the API answers", func() bool {
		answer, err := healthClient.Get(s.URL() + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
}

// strikeOnce does one fault of the kind, on whatever the seed picks.
func strikeOnce(t *testing.T, s *Stack, name string, seed uint64) Fault {
	t.Helper()
	return strikeUntil(testContext(t), t, s, name, seed)
}

func strikeUntil(ctx context.Context, t *testing.T, s *Stack, name string, seed uint64) Fault {
	t.Helper()
	f, ok := kindNamed(t, name).do(ctx, s, seed)
	require.True(t, ok, "there was nothing to hit by %s", name)
	require.NoError(t, f.Err)
	require.Equal(t, name, f.Kind)
	require.False(t, f.Until.Before(f.At))
	return f
}

func kindNamed(t *testing.T, name string) Kind {
	t.Helper()
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return kinds[i]
}
