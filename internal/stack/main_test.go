package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// The test binary also acts as a fake worker or as a parent of servers.
func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		fmt.Println("error:", runAsParent(dir))
		os.Exit(1)
	}
	if len(os.Args) > 1 && (os.Args[1] == "worker" || os.Args[1] == "api") {
		os.Exit(runFakeWorker(os.Getenv("FORGERUN_FAKE")))
	}
	code := m.Run()
	testkit.RemovePrograms()
	_ = os.RemoveAll(cluster.dir)
	os.Exit(code)
}

func runFakeWorker(behavior string) int {
	switch behavior {
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

// Servers can enter tempDir, unlike t.TempDir; see MkdirTemp.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := MkdirTemp("", "stack-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	return dir
}

// cluster is an empty Postgres cluster that all tests copy, because initdb takes seconds.
var cluster struct {
	once sync.Once
	dir  string
	err  error
}

func postgresDir(t *testing.T) string {
	t.Helper()
	cluster.once.Do(func() {
		if cluster.dir, cluster.err = MkdirTemp("", "stack-test-"); cluster.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		var p *Postgres
		if p, cluster.err = StartPostgres(ctx, ServerOptions{Dir: filepath.Join(cluster.dir, "postgres"), throwaway: true}); cluster.err == nil {
			cluster.err = p.Stop()
		}
	})
	require.NoError(t, cluster.err)
	dir := filepath.Join(tempDir(t), "postgres")
	out, err := exec.Command("cp", "-a", filepath.Join(cluster.dir, "postgres"), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

func newPostgres(t *testing.T, o ServerOptions) *Postgres {
	t.Helper()
	if o.Dir == "" {
		o.Dir = postgresDir(t)
	}
	p, err := StartPostgres(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Kill()) })
	return p
}

func newRedis(t *testing.T, o ServerOptions) *Redis {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(tempDir(t), "redis")
	}
	r, err := StartRedis(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Kill()) })
	return r
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func query(t *testing.T, url, sql string) (text string) {
	t.Helper()
	conn := connect(t, url)
	err := conn.QueryRow(testContext(t), sql).Scan(&text)
	if err != pgx.ErrNoRows { //nolint:errorlint // pgx does not wrap this error
		require.NoError(t, err)
	}
	require.NoError(t, conn.Close(testContext(t)))
	return text
}

func ask(t *testing.T, s *server, command string) []string {
	t.Helper()
	lines, err := (&Redis{s}).converse(testContext(t), command)
	require.NoError(t, err)
	return lines
}

type logged struct{ testkit.Output }

func (l *logged) contains(text string) bool { return strings.Contains(l.String(), text) }

func newLogger() (*logged, *slog.Logger) {
	l := &logged{}
	return l, slog.New(slog.NewTextHandler(l, nil))
}

func startReal(t *testing.T, o Options) *Stack {
	t.Helper()
	o.Forgerun, o.Lease = testkit.Program(t, "forgerun"), time.Second
	return startStack(t, o)
}

func startFake(t *testing.T, behavior string) *Stack {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	return startStack(t, Options{
		Forgerun: self, DatabaseURL: "postgres://nowhere", RedisURL: "redis://nowhere",
		Env: map[string]string{"FORGERUN_FAKE": behavior, "FORGERUN_SHUTDOWN_GRACE": "1s"},
	})
}

func startStack(t *testing.T, o Options) *Stack {
	t.Helper()
	o.Dir = tempDir(t)
	messages := &testkit.Output{}
	o.Log = messages
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(messages.String())
		}
	})
	s, err := Start(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() }) // tests of Close check its error
	return s
}

func pids(s *Stack) []int {
	var all []int
	for _, m := range s.members() {
		if p := m.living(); p != nil {
			all = append(all, p.PID())
		}
	}
	if !s.o.foreign() {
		all = append(all, s.servers.Postgres.PID(), s.servers.Redis.PID())
	}
	return all
}

func signalTo(pid int, s os.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Signal(s)
}

// hasEnded also returns true for a zombie.
func hasEnded(pid int) bool {
	if runtime.GOOS != "linux" {
		return errors.Is(signalTo(pid, syscall.Signal(0)), os.ErrProcessDone)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

func requireGone(t *testing.T, pids []int) {
	t.Helper()
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		require.ErrorIs(t, signalTo(pid, syscall.Signal(0)), os.ErrProcessDone, "process %d", pid)
	}
}

func requireHealthyAPI(t *testing.T, s *Stack) {
	t.Helper()
	testkit.Eventually(t, "the API is ready", func() bool {
		response, err := healthClient.Get(s.URL + "/readyz")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}
