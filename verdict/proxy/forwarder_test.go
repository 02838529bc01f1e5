package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/proxy"
)

// A Go client uses a forward proxy with HTTP/1.1 and HTTP/2 to reach the target and another host. The target sees the Host that the client
// sent, and addresses in its answers do not change. A web page that reaches the proxy gets no further access.
func TestForwardProxy(t *testing.T) {
	t.Parallel()
	seen := make(chan string, 10)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Proto + " " + r.Host
		w.Header().Set("Location", "https://"+r.Host+"/jobs/1")
		w.WriteHeader(http.StatusAccepted)
	})
	target := httptest.NewUnstartedServer(handler)
	target.EnableHTTP2 = true
	target.StartTLS()
	defer target.Close()
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "untouched") }))
	defer other.Close()

	at, err := url.Parse(target.URL)
	require.NoError(t, err)
	description, err := api.Load("")
	require.NoError(t, err)
	p := proxy.New(at, description, slog.New(slog.DiscardHandler))
	proxy.TrustAny(p)
	authority, err := p.Forward()
	require.NoError(t, err)
	server := p.Server()
	listener, err := p.Listen("127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(authority))
	roots.AddCert(other.Certificate())
	via, err := url.Parse("http://" + listener.Addr().String())
	require.NoError(t, err)
	for _, h2 := range []bool{false, true} {
		client := &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyURL(via), TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: h2,
		}}
		answer, err := client.Post(target.URL+"/jobs", "application/json", strings.NewReader("{}"))
		require.NoError(t, err)
		_ = answer.Body.Close()
		require.Equal(t, http.StatusAccepted, answer.StatusCode)
		require.Equal(t, h2, answer.ProtoMajor == 2)
		require.Equal(t, "https://"+at.Host+"/jobs/1", answer.Header.Get("Location"))
		require.Contains(t, <-seen, at.Host)
		require.Equal(t, "ForgeRun proxy", answer.TLS.VerifiedChains[0][1].Subject.CommonName)

		answer, err = client.Get(other.URL)
		require.NoError(t, err)
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.Equal(t, "untouched", string(body))
		require.Equal(t, other.Certificate().Raw, answer.TLS.PeerCertificates[0].Raw)
		client.CloseIdleConnections()
	}
	rebound, err := http.NewRequest(http.MethodGet, via.String(), http.NoBody)
	require.NoError(t, err)
	rebound.Host = "evil.example"
	answer, err := http.DefaultClient.Do(rebound)
	require.NoError(t, err)
	_ = answer.Body.Close()
	require.Equal(t, http.StatusMisdirectedRequest, answer.StatusCode)
}
