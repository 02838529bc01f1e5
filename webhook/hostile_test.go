package webhook

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// script responds to the request on conn like a hostile receiver. It must return when a write fails or `gone` is canceled. The connection
// is closed afterwards.
type script func(gone context.Context, conn *net.TCPConn)

// newScript starts a receiver. It closes `ended` when its first connection is over.
func newScript(t *testing.T, play script) (url string, ended chan struct{}) {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	gone, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); _ = l.Close() })
	ended = make(chan struct{})
	var first atomic.Bool
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				r, err := http.ReadRequest(bufio.NewReader(conn))
				if err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					play(gone, conn.(*net.TCPConn))
				}
				if first.CompareAndSwap(false, true) {
					close(ended)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/", ended
}

func requireEnded(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(testkit.Patience):
		require.Fail(t, "the receiver is still connected")
	}
}

func say(text string) script {
	return func(_ context.Context, conn *net.TCPConn) { _, _ = io.WriteString(conn, text) }
}

func sayAndHang(text string) script {
	return func(gone context.Context, conn *net.TCPConn) {
		_, _ = io.WriteString(conn, text)
		hang(gone, conn)
	}
}

func hang(gone context.Context, conn *net.TCPConn) {
	stop := context.AfterFunc(gone, func() { _ = conn.Close() })
	defer stop()
	_, _ = io.Copy(io.Discard, conn) // until the sender closes the connection
}

func repeat(head, text string) script { return paced(head, text, 0) }

func drip(head, text string) script { return paced(head, text, 10*time.Millisecond) }

func paced(head, text string, pause time.Duration) script {
	return func(gone context.Context, conn *net.TCPConn) {
		stop := context.AfterFunc(gone, func() { _ = conn.Close() })
		defer stop()
		_, err := io.WriteString(conn, head)
		for err == nil {
			time.Sleep(pause)
			_, err = io.WriteString(conn, text)
		}
	}
}

func reset(head string) script {
	return func(_ context.Context, conn *net.TCPConn) {
		_, _ = io.WriteString(conn, head)
		_ = conn.SetLinger(0)
	}
}

const ok = "HTTP/1.1 200 OK\r\n"

func TestHostileReceivers(t *testing.T) {
	t.Parallel()
	const soon, late = 500 * time.Millisecond, time.Minute // timeouts: the first is expected to expire, the second is not
	long := strings.Repeat("x", 16<<10)
	tests := map[string]struct {
		play    script
		timeout time.Duration
		want    job.SendError
		status  int
		body    int // expected length of the stored body; -1 if not checked
	}{
		"hangs":                    {hang, soon, job.SendTimeout, 0, 0},
		"hangs in the header":      {sayAndHang(ok + "A: b\r\n"), soon, job.SendTimeout, 0, 0},
		"hangs before the body":    {sayAndHang(ok + "Content-Length: 10\r\n\r\n"), soon, job.SendTimeout, 200, 0},
		"hangs in the body":        {sayAndHang(ok + "Content-Length: 10\r\n\r\nhalf"), soon, job.SendTimeout, 200, 4},
		"hangs in a body of 500":   {sayAndHang("HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nhalf"), soon, job.SendServerError, 500, 4},
		"drips headers":            {drip(ok, "A: b\r\n"), soon, job.SendTimeout, 0, 0},
		"drips the body":           {drip(ok+"Content-Length: 100000\r\n\r\n", "x"), soon, job.SendTimeout, 200, -1},
		"drips 100 Continue":       {drip("", "HTTP/1.1 100 Continue\r\n\r\n"), soon, job.SendTimeout, 0, 0},
		"floods with 100 Continue": {repeat("", "HTTP/1.1 100 Continue\r\n\r\n"), late, job.SendBadAnswer, 0, 0},
		"endless header":           {repeat(ok+"A: ", long), late, job.SendBadAnswer, 0, 0},
		"endless body":             {repeat(ok+"\r\n", long), late, "", 200, job.MaxStoredBody},
		"endless chunks":           {repeat(ok+"Transfer-Encoding: chunked\r\n\r\n", "4000\r\n"+long+"\r\n"), late, "", 200, job.MaxStoredBody},
		"endless chunk extension":  {repeat(ok+"Transfer-Encoding: chunked\r\n\r\n1;", long), late, job.SendBadAnswer, 200, 0},
		"endless trailer":          {repeat(ok+"Transfer-Encoding: chunked\r\n\r\n0\r\nA: ", long), late, job.SendBadAnswer, 200, 0},
		"huge length":              {repeat(ok+"Content-Length: 9223372036854775807\r\n\r\n", long), late, "", 200, job.MaxStoredBody},
		"closes":                   {say(""), late, job.SendReset, 0, 0},
		"closes in the body":       {say(ok + "Content-Length: 10\r\n\r\nhalf"), late, job.SendReset, 200, 4},
		"closes in a body of 410":  {say("HTTP/1.1 410 Gone\r\nContent-Length: 10\r\n\r\nhalf"), late, job.SendGone, 410, 4},
		"resets":                   {reset(""), late, job.SendReset, 0, 0},
		"garbage":                  {say("\x00\x01\x02\xff garbage\r\n\r\n"), late, job.SendBadAnswer, 0, 0},
		"status 999":               {say("HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n"), late, job.SendBadAnswer, 999, 0},
		"switches protocols": {sayAndHang("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"), late,
			job.SendBadAnswer, 101, 0},
		"bad chunk":            {say(ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n"), late, job.SendBadAnswer, 200, 0},
		"compressed bomb":      {repeat(ok+"Content-Encoding: gzip\r\n\r\n", long), late, "", 200, job.MaxStoredBody},
		"more than its length": {say(ok + "Content-Length: 2\r\n\r\nmore"), late, "", 200, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, ended := newScript(t, test.play)
			s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: test.timeout})
			a := sendTo(t, s, url).Attempt
			require.Equal(t, test.want, a.Error)
			require.Equal(t, test.status, a.Status)
			if test.body >= 0 {
				require.Len(t, a.Body, test.body)
			}
			require.LessOrEqual(t, len(a.Body), job.MaxStoredBody)
			if test.timeout == soon {
				require.GreaterOrEqual(t, a.Duration, soon)
			}
			s.Close()
			requireEnded(t, ended)
		})
	}
}

// The transport retries if a receiver closes an idle connection at the moment of reuse.
func TestReceiverThatClosesIdleConnections(t *testing.T) {
	t.Parallel()
	var answers atomic.Int32
	url, _ := newScript(t, func(gone context.Context, conn *net.TCPConn) {
		stop := context.AfterFunc(gone, func() { _ = conn.Close() })
		defer stop()
		answers.Add(1)
		_, _ = io.WriteString(conn, ok+"Content-Length: 0\r\n\r\n")
		_, _ = conn.Read(make([]byte, 64<<10)) // the next request
	})
	s := localSender(t)
	for range 5 {
		require.Empty(t, sendTo(t, s, url).Attempt.Error)
	}
	require.EqualValues(t, 5, answers.Load())
}

func TestStoredHeadIsPlainText(t *testing.T) {
	t.Parallel()
	url, _ := newScript(t, say(ok+"Set-Cookie: session=secret\r\nSet-Cookie: b=secret\r\n"+
		"X-Bytes: a\xffb\tc\xc3\xbc\r\nX-Two: 1\r\nX-Two: 2\r\nContent-Length: 0\r\n\r\n"))
	s := localSender(t)
	a := sendTo(t, s, url).Attempt
	require.Empty(t, a.Error)
	require.Equal(t, map[string][]string{"X-Bytes": {"a\ufffdb\ufffdcü"}, "X-Two": {"1", "2"}, "Content-Length": {"0"}}, a.Header)
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "1": time.Second, "120": 2 * time.Minute, "86400": 24 * time.Hour, "86401": 24 * time.Hour,
		"99999999999999999999999999": 24 * time.Hour, "9223372036854775807": 24 * time.Hour, "-1": 0, "+1": 0, "1.5": 0, "1 2": 0, "soon": 0,
		"Thu, 31 Jan 2030 12:00:30 GMT": 30 * time.Second, "Thursday, 31-Jan-30 12:01:00 GMT": time.Minute,
		"Thu Jan 31 12:00:10 2030":      10 * time.Second,
		"Thu, 31 Jan 2030 11:00:00 GMT": 0, "Fri, 31 Jan 2031 12:00:00 GMT": 24 * time.Hour, "Fri, 31 Dec 9999 23:59:59 GMT": 24 * time.Hour,
	} {
		require.Equal(t, want, retryAfter(value, now), value)
	}
}

func TestStoredHeadIsBounded(t *testing.T) {
	t.Parallel()
	many := http.Header{}
	for i := range 500 {
		many.Set(fmt.Sprintf("X-%03d", i), "v")
	}
	require.Len(t, storedHeader(many), maxStoredNames)

	large := http.Header{"A": {strings.Repeat("x", maxStoredHead)}, "B": {"kept"}, "C": {}}
	for range 10_000 {
		large.Add("D", "\xff\xff\xff")
	}
	stored := storedHeader(large)
	require.NotContains(t, stored, "A")
	require.Equal(t, []string{"kept"}, stored["B"])
	size := 0
	for name, values := range stored {
		for _, v := range values {
			size += len(name) + len(v)
		}
	}
	require.LessOrEqual(t, size, maxStoredHead)
	require.Empty(t, storedHeader(nil))
	require.Equal(t, map[string][]string{"A\ufffd": {"\ufffd\ufffdü"}}, storedHeader(http.Header{"A\xff": {"\x00\u0085ü"}}))
}
