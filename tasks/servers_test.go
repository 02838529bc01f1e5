package tasks_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// A cluster member listens on two ports; the number of the second port is 10,000 higher. If one of these ports is in use, startRedis
// tries again.
func startRedis(t *testing.T, settings map[string]string) (server *stack.Redis, data string) {
	t.Helper()
	redistest.NeedServer(t)
	for range 10 {
		dir := redistest.Must(stack.MkdirTemp("", "forgerun-tasks-"))(t)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		var err error
		server, err = stack.StartRedis(t.Context(), stack.ServerOptions{Dir: dir, Settings: settings})
		if err == nil {
			t.Cleanup(func() { _ = server.Kill() })
			return server, filepath.Join(dir, "data")
		}
		require.ErrorContains(t, err, "(cluster), aborting")
	}
	require.Fail(t, "no free pair of ports was found")
	return nil, ""
}

func startSentinel(t *testing.T, monitored int) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	for range 10 {
		l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
		port := l.Addr().(*net.TCPAddr).Port
		require.NoError(t, l.Close())
		require.NoError(t, os.WriteFile(config, fmt.Appendf(nil,
			"bind 127.0.0.1\nport %d\nsentinel monitor main 127.0.0.1 %d 1\n", port, monitored), 0o600))
		sentinel := exec.CommandContext(t.Context(), "redis-server", config, "--sentinel")
		log := redistest.Must(sentinel.StdoutPipe())(t)
		require.NoError(t, sentinel.Start())
		t.Cleanup(func() { _ = sentinel.Wait() })
		for lines := bufio.NewScanner(log); lines.Scan(); { // the log ends if the port is taken
			if strings.Contains(lines.Text(), "Sentinel ID is") {
				return fmt.Sprint("127.0.0.1:", port)
			}
		}
	}
	require.FailNow(t, "no port for a sentinel")
	return ""
}

func tlsProxy(t *testing.T, target string) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	t.Cleanup(server.Close)
	l := redistest.Must(tls.Listen("tcp", "127.0.0.1:0", server.TLS))(t)
	serveProxy(t, l, target, func([]byte) bool { return true })
	return l.Addr().String()
}

// If `pass` returns false, the proxy ends the connection.
func proxy(t *testing.T, port int, pass func(sent []byte) bool) (url string) {
	t.Helper()
	l := redistest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	serveProxy(t, l, fmt.Sprint("127.0.0.1:", port), pass)
	return "redis://" + l.Addr().String()
}

func serveProxy(t *testing.T, l net.Listener, target string, pass func([]byte) bool) {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
	})
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go forward(ctx, from, target, pass)
		}
	}()
}

func forward(ctx context.Context, from net.Conn, target string, pass func([]byte) bool) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	stop := context.AfterFunc(ctx, func() { _, _ = from.Close(), to.Close() })
	defer stop()
	go func() {
		defer func() { _ = to.Close() }()
		buffer := make([]byte, 1<<16)
		for passing := true; ; {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if passing = passing && pass(buffer[:n]); passing {
				_, _ = to.Write(buffer[:n])
			}
		}
	}()
	_, _ = io.Copy(from, to)
}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
