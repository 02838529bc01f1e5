package stack

import (
	"bufio"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// echo is a server that sends every line back, behind a proxy.
func echo(t *testing.T) *proxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	p, err := newProxy("echo", anyAddress, dialer(l.Addr().String()))
	require.NoError(t, err)
	t.Cleanup(p.close)
	return p
}

// caller is a connection to an echo.
type caller struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func call(t *testing.T, p *proxy) caller {
	t.Helper()
	conn, err := net.Dial("tcp4", p.address())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(testkit.Patience)))
	c := caller{t, conn, bufio.NewReader(conn)}
	c.say("hello")
	c.hears("hello")
	return c
}

func (c caller) say(line string) {
	c.t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(c.t, err)
}

func (c caller) hears(line string) {
	c.t.Helper()
	got, err := c.in.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, line+"\n", got)
}

func anySeed() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestCutResetsAShare(t *testing.T) {
	t.Parallel()
	p := echo(t)
	var calls []caller
	for range 8 {
		calls = append(calls, call(t, p))
	}
	require.Len(t, p.open(), 8)
	require.Equal(t, 2, cut(testContext(t), p, anySeed()))
	testkit.Eventually(t, "the links are gone", func() bool { return len(p.open()) == 6 })
	reset := 0
	for _, c := range calls {
		_, err := io.WriteString(c, "still there?\n")
		if err == nil {
			_, err = c.in.ReadString('\n')
		}
		if err != nil {
			require.ErrorIs(t, err, syscall.ECONNRESET)
			reset++
		}
	}
	require.Equal(t, 2, reset)
	for left := 5; left >= 0; left-- {
		require.Equal(t, 1, cut(testContext(t), p, anySeed()), "at least one")
		testkit.Eventually(t, "the link is gone", func() bool { return len(p.open()) == left })
	}
	require.Zero(t, cut(testContext(t), p, anySeed()), "there is nothing to cut")
	call(t, p)
}

func TestLostAnswer(t *testing.T) {
	t.Parallel()
	var served int
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			served++
		}
	}))
	t.Cleanup(server.Close)
	p, err := newProxy("api", anyAddress, dialer(server.Listener.Addr().String()))
	require.NoError(t, err)
	t.Cleanup(p.close)
	client := &http.Client{Transport: &http.Transport{}, Timeout: testkit.Patience}
	answer, err := client.Get("http://" + p.address())
	require.NoError(t, err)
	_ = answer.Body.Close()
	testkit.Eventually(t, "the link is there", func() bool { return len(p.open()) == 1 })

	lost := make(chan int, 1)
	go func() { lost <- lose(testContext(t), p, anySeed()) }()
	testkit.Eventually(t, "an answer is waited for", p.open()[0].losing.Load)
	_, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.Error(t, err)
	require.Equal(t, 1, <-lost)
	require.Equal(t, 1, served, "the server has done it")

	answer, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.NoError(t, err, "only one answer is lost")
	_ = answer.Body.Close()
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	require.Zero(t, lose(ended, p, anySeed()))
	answer, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.NoError(t, err, "the fault is over")
	_ = answer.Body.Close()
}

func TestProxyPassesTheEndOn(t *testing.T) {
	t.Parallel()
	p := echo(t)
	c := call(t, p)
	c.say("last words")
	require.NoError(t, c.Conn.(*net.TCPConn).CloseWrite())
	c.hears("last words")
	_, err := c.in.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	testkit.Eventually(t, "the link ends", func() bool { return len(p.open()) == 0 })
}
