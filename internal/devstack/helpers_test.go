package devstack

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// parentEnv makes the test binary be a parent of servers that waits to be killed.
const parentEnv = "DEVSTACK_TEST_PARENT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentEnv); dir != "" {
		if err := beParent(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	_ = os.RemoveAll(made.dir)
	os.Exit(code)
}

// testContext bounds a test's waits.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	t.Cleanup(cancel)
	return ctx
}

// cleanupContext is for what runs after the test's own context has ended.
func cleanupContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

// tempDir is t.TempDir for server folders; see MkdirTemp.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := MkdirTemp("devstack-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	dir, err = filepath.EvalSymlinks(dir)
	require.NoError(t, err)
	return dir
}

// made has the folder of a cluster that is made once: initdb takes seconds.
var made struct {
	once sync.Once
	dir  string
	err  error
}

// postgresDir is a folder of the test's own with a cluster that nobody has used.
func postgresDir(t *testing.T) string {
	t.Helper()
	made.once.Do(func() {
		if made.dir, made.err = MkdirTemp("devstack-test-"); made.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
		defer cancel()
		var p *Postgres
		if p, made.err = StartPostgres(ctx, PostgresOptions{Dir: filepath.Join(made.dir, "postgres"), throwaway: true}); made.err == nil {
			made.err = p.Stop(Fast)
		}
	})
	require.NoError(t, made.err)
	dir := filepath.Join(tempDir(t), "postgres")
	out, err := exec.Command("cp", "-a", filepath.Join(made.dir, "postgres"), dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// startPostgres starts it in a folder that has a cluster already, unless one is given.
func startPostgres(t *testing.T, o PostgresOptions) *Postgres {
	t.Helper()
	if o.Dir == "" {
		o.Dir = postgresDir(t)
	}
	p, err := StartPostgres(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Stop(Immediate)) })
	return p
}

func startRedis(t *testing.T, o RedisOptions) *Redis {
	t.Helper()
	if o.Dir == "" {
		o.Dir = filepath.Join(tempDir(t), "redis")
	}
	r, err := StartRedis(testContext(t), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Kill()) })
	return r
}

func execSQL(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	defer closeConn(conn)
	_, err = conn.Exec(testContext(t), sql)
	require.NoError(t, err)
}

func queryText(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(testContext(t), url)
	require.NoError(t, err)
	defer closeConn(conn)
	var text string
	require.NoError(t, conn.QueryRow(testContext(t), sql).Scan(&text))
	return text
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := cleanupContext()
	defer cancel()
	_ = conn.Close(ctx)
}

func redisClient(t *testing.T, url string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(url)
	require.NoError(t, err)
	o.MaxRetries, o.ContextTimeoutEnabled = -1, true
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startStranger runs a harmless process that is no server, as the user that
// servers on dataDir run as.
func startStranger(t *testing.T, user *account) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user.credential()}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// logBuffer is a logger whose text can be read while it is written.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) contains(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Contains(b.buf.String(), text)
}

func newLogBuffer() (*logBuffer, *slog.Logger) {
	b := &logBuffer{}
	return b, slog.New(slog.NewTextHandler(b, nil))
}
