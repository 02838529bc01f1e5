package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func rootsOf(s *httptest.Server) *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return roots
}

// drainingListener reads each connection to its end before closing it. In TLS 1.3, the client may send data before the server refuses its
// certificate. A server that closes with unread data sends a TCP reset, which could hide the TLS alert.
type drainingListener struct{ net.Listener }

type drainingConn struct{ *net.TCPConn }

func (l drainingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return drainingConn{c.(*net.TCPConn)}, nil
}

func (c drainingConn) Close() error {
	_ = c.CloseWrite()
	_, _ = io.Copy(io.Discard, c.TCPConn)
	return c.TCPConn.Close()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	quiet := log.New(io.Discard, "", 0)
	good := newReceiver(t, func(s *httptest.Server) {
		s.Config.ErrorLog = quiet
		s.StartTLS()
	}, nil)
	old := newReceiver(t, func(s *httptest.Server) {
		s.TLS, s.Config.ErrorLog = &tls.Config{MaxVersion: tls.VersionTLS11}, quiet
		s.StartTLS()
	}, nil)
	plain := newReceiver(t, (*httptest.Server).Start, nil)
	clients := newReceiver(t, func(s *httptest.Server) {
		s.TLS, s.Config.ErrorLog = &tls.Config{ClientAuth: tls.RequireAnyClientCert}, quiet
		s.Listener = drainingListener{s.Listener}
		s.StartTLS()
	}, nil)
	other, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections, but no server handles them
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	address := func(r *receiver) string { return r.Listener.Addr().String() }
	roots := rootsOf(good.Server)
	for name, test := range map[string]struct {
		address string
		roots   *x509.CertPool
		timeout time.Duration
		want    job.SendError
	}{
		"trusted":             {address(good), roots, 30 * time.Second, ""},
		"not trusted":         {address(good), nil, 30 * time.Second, job.SendTLS},
		"old version":         {address(old), roots, 30 * time.Second, job.SendTLS},
		"not TLS":             {address(plain), roots, 30 * time.Second, job.SendTLS},
		"wants a certificate": {address(clients), roots, 30 * time.Second, job.SendTLS},
		"wrong name":          {strings.Replace(address(good), "127.0.0.1", "other.example.org", 1), roots, 30 * time.Second, job.SendTLS},
		"hangs":               {other.Addr().String(), roots, time.Second, job.SendTimeout},
	} {
		s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: test.timeout, RootCAs: test.roots})
		s.dialer.Resolver = resolver(func(string) []netip.Addr { return loopback })
		require.Equal(t, test.want, sendTo(t, s, "https://"+test.address+"/").Attempt.Error, name)
	}
	for _, r := range []*receiver{old, plain, clients} {
		require.Empty(t, r.all())
	}
}

func TestHTTP2(t *testing.T) {
	t.Parallel()
	var proto atomic.Int32
	r := newReceiver(t, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, func(_ http.ResponseWriter, q *http.Request) {
		proto.Store(int32(q.ProtoMajor))
	})
	s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: 20 * time.Second, RootCAs: rootsOf(r.Server)})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			require.Empty(t, sendTo(t, s, r.URL+"/hook").Attempt.Error)
		})
	}
	wg.Wait()
	require.EqualValues(t, 2, proto.Load())
	for _, c := range r.all() {
		must(c.verify(publicKey(t, s), time.Now()))(t)
	}
}

func TestHostileReceiversWithHTTP2(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 16<<10)); err != nil {
				return
			}
		}
	}
	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		timeout time.Duration
		want    job.SendError
		body    int
	}{
		"endless body": {endless, 30 * time.Second, "", job.MaxStoredBody},
		"hangs":        {func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, time.Second, job.SendTimeout, 0},
		"large header": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("A", strings.Repeat("x", 2*maxResponseHead)) // too large, so the transport closes the connection
		}, 30 * time.Second, job.SendReset, 0},
		"resets": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 30 * time.Second, job.SendReset, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{}, 10)
			r := newReceiver(t, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, func(w http.ResponseWriter, q *http.Request) {
				defer func() { ended <- struct{}{} }()
				test.answer(w, q)
			})
			s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: test.timeout, RootCAs: rootsOf(r.Server)})
			a := sendTo(t, s, r.URL).Attempt
			require.Equal(t, test.want, a.Error)
			require.Len(t, a.Body, test.body)
			if test.want != job.SendTimeout { // a timeout may come before the handler is called
				<-ended
			}
		})
	}
}
