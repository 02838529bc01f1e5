package webhook

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestReasonHasTheAddress(t *testing.T) {
	t.Parallel()
	closed := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	require.NoError(t, closed.Close())
	refused := closed.Addr().String()
	_, port, _ := net.SplitHostPort(refused)
	hung, _ := newScript(t, hang)
	lost, _ := newScript(t, say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"))
	odd, _ := newScript(t, say("SSH-2.0-\x1b[31m"+strings.Repeat("x", 1000)+"\r\n"))
	unavailable := newReceiver(t, (*httptest.Server).Start, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }).URL
	untrusted := newReceiver(t, (*httptest.Server).StartTLS, nil).URL
	host := func(u string) string { return must(url.Parse(u))(t).Host }
	for target, want := range map[string]string{
		"http://" + refused + "/":        "connection refused by " + refused,
		"http://localhost:" + port + "/": "connection refused by localhost:" + port, // not the resolved address
		hung:                             "timeout after 0.5 s from " + host(hung),
		lost:                             "connection to " + host(lost) + " lost: unexpected EOF",
		odd:                              "invalid response from " + host(odd) + ": malformed HTTP response \"SSH-2.0-",
		unavailable:                      "HTTP 503 from " + host(unavailable),
		untrusted:                        "certificate of " + host(untrusted) + " refused: x509: certificate signed by unknown authority",
		"http://nothing.invalid/":        "no allowed address for nothing.invalid",
	} {
		got := sendTo(t, newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: 500 * time.Millisecond}), target).Attempt.Reason
		require.True(t, strings.HasPrefix(got, want), "%s: %s", target, got)
		require.Less(t, len(got), 400)
		require.NotContains(t, got, "\x1b")
	}
	s := newSender(t, SenderConfig{Guard: NewGuard(false), Timeout: time.Minute})
	require.Contains(t, sendTo(t, s, "http://127.0.0.1:9/").Attempt.Reason, "http://127.0.0.1:9/ is not called. ")
}

func TestReasonHidesPrivateAddresses(t *testing.T) {
	t.Parallel()
	s := localSender(t)
	target := must(url.Parse("https://inner.example/hook"))(t)
	for peer, want := range map[string]string{
		"10.1.2.3:443": "inner.example:443", "[::ffff:10.1.2.3]:443": "inner.example:443", "[fd00::1]:443": "inner.example:443",
		"127.0.0.1:443": "inner.example:443", "8.8.8.8:443": "8.8.8.8:443", "": "inner.example:443",
	} {
		for dialed, text := range map[bool]string{true: "connection refused by ", false: "timeout after "} {
			a, err := &job.DeliveryAttempt{Error: job.SendTimeout}, error(nil)
			if addr, _ := net.ResolveTCPAddr("tcp", peer); dialed && peer != "" {
				a.Error, err = job.SendRefused, &net.OpError{Op: "dial", Addr: addr, Err: syscall.ECONNREFUSED}
			} else {
				text = "timeout after "
			}
			got := s.reason(a, err, target, peer)
			require.True(t, strings.HasPrefix(got, text) && strings.HasSuffix(got, want), "%s: %s", peer, got)
		}
	}
}
