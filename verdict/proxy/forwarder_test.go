package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/proxy"
)

// The target sees the Host that the client sent, and addresses in its responses do not change. A request with the Host of another website
// is refused.
func TestForwardProxy(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 2)
	target := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Host
		w.Header().Set("Location", "https://"+r.Host+"/jobs/1")
		w.WriteHeader(http.StatusAccepted)
	}))
	target.EnableHTTP2 = true
	target.StartTLS()
	defer target.Close()
	host := strings.TrimPrefix(target.URL, "https://")
	p := newProxy(t, target.URL, "")
	proxy.TrustAny(p)
	authority, err := p.Forward()
	require.NoError(t, err)
	address := listen(t, p)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	for _, h2 := range []bool{false, true} {
		transport := &http.Transport{
			Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: address}), ForceAttemptHTTP2: h2,
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}
		t.Cleanup(transport.CloseIdleConnections)
		a := (&bench{t, target.URL, &http.Client{Transport: transport}}).do("POST", "/jobs", "{}")
		require.NoError(t, a.err)
		require.Equal(t, http.StatusAccepted, a.StatusCode)
		require.Equal(t, h2, a.ProtoMajor == 2)
		require.Equal(t, "https://"+host+"/jobs/1", a.Header.Get("Location"))
		require.Equal(t, host, <-seen)
	}
	c := dial(t, address)
	c.send("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	require.Contains(t, c.until("\r\n\r\n"), "421 Misdirected Request")
}
