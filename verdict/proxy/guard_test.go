package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/proxy"
)

func guarded(t *testing.T) *proxy.Proxy {
	t.Helper()
	return newProxy(t, serverOf(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), "")
}

func ask(h http.Handler, method, path, host, body string, headers ...string) int {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

const sessions = "/-/forgerun/v1/testbed/sessions"

// A web page with a host name that points at this machine can read neither the proxy's own routes nor the target.
func TestForeignHostsAreMisdirected(t *testing.T) {
	t.Parallel()
	p := guarded(t)
	p.AllowHosts("Api.Example.Test", "[fd00::1]:80")
	open := guarded(t)
	server := open.Server()
	l, err := open.Listen("0.0.0.0:0")
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = server.Close(), l.Close() })
	hook := p.Hook(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, "")
	for host, allowed := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:9000": true, "[::1]:9000": true, "localhost:1": true, "LocalHost.": true, "app.localhost:9000": true,
		"host.docker.internal:9000": true, "api.example.test": true, "API.example.test:9000": true, "[fd00::1]": true,
		"": false, "evil.example": false, "127.0.0.1.evil.example": false, "localhost.evil.example:9000": false, "192.0.2.1": false,
		"x.api.example.test": false, "evil.example:80:127.0.0.1": false, "0.0.0.0:9000": false, "[fe80::1%25lo]": false, "[fd00::2]": false,
	} {
		for _, path := range []string{sessions, "/-/forgerun/other", "/", "/things?a=1"} {
			status := ask(p, "GET", path, host, "")
			require.Equal(t, !allowed, status == http.StatusMisdirectedRequest, "%s of %q: %d", path, host, status)
			if host != "" {
				require.NotEqual(t, http.StatusMisdirectedRequest, ask(open, "GET", path, host, ""), "open to others")
			}
		}
		require.Equal(t, !allowed, ask(p, "GET", "/ws", host, "", "Connection", "upgrade", "Upgrade", "websocket") == 421, host)
		require.Equal(t, !allowed, ask(hook, "POST", "/hook", host, "{}") == 421, host)
		require.Equal(t, !allowed, ask(p.Own(), "GET", sessions, host, "") == 421, "the control listener of %q", host)
		own := allowed && !strings.Contains(strings.ToLower(host), "example") && !strings.Contains(host, "fd00")
		require.Equal(t, !own, ask(open.Own(), "GET", sessions, host, "") == 421, "the control listener is on loopback: %q", host)
	}
}

// Web pages of other sites and ports can neither change nor read anything. A form cannot use the proxy's own routes, because it cannot
// send JSON.
func TestPagesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	p := guarded(t)
	const here, asJSON = "127.0.0.1:9000", "application/json"
	for _, h := range []http.Handler{p, p.Own()} {
		for _, c := range []struct {
			status  int
			headers []string
		}{
			{403, []string{"Sec-Fetch-Site", "cross-site"}},
			{403, []string{"Sec-Fetch-Site", "same-site"}},
			{403, []string{"Sec-Fetch-Site", "unheard-of"}},
			{403, []string{"Origin", "https://evil.example"}},
			{403, []string{"Origin", "null"}},
			{403, []string{"Origin", "http://127.0.0.1:5173"}},
			{403, []string{"Origin", "http://127.0.0.1:9000.evil.example"}},
			{200, []string{"Origin", "http://127.0.0.1:9000"}},
			{200, []string{"Sec-Fetch-Site", "same-origin", "Origin", "http://127.0.0.1:9000"}},
			{200, []string{"Sec-Fetch-Site", "none"}},
			{200, nil},
		} {
			require.Equal(t, c.status, ask(h, "GET", sessions, here, "", c.headers...), c.headers)
			for method, path := range map[string]string{
				"POST": sessions, "PUT": "/-/forgerun/v1/testbed/faults", "DELETE": "/-/forgerun/v1/testbed/faults",
			} {
				status := ask(h, method, path, here, "", append([]string{"Content-Type", asJSON}, c.headers...)...)
				require.Equal(t, c.status == 403, status == 403, "%s %v: %d", method, c.headers, status)
			}
		}
		for kind, refused := range map[string]bool{
			"": true, "text/plain": true, "text/plain;application/json": true, "application/x-www-form-urlencoded": true,
			"multipart/form-data": true,
			asJSON:                false, "Application/JSON; charset=utf-8": false,
		} {
			require.Equal(t, refused, ask(h, "PUT", "/-/forgerun/v1/testbed/faults", here, "[]", "Content-Type", kind) == 415, kind)
			require.Equal(t, refused, ask(h, "POST", sessions, here, `{"profile": "x"}`, "Content-Type", kind) == 415, kind)
		}
	}
	require.Equal(t, 200, ask(p, "POST", "/things", here, "a=1", "Sec-Fetch-Site", "cross-site"), "the proxy does not protect the target")
	hook := p.Hook(&url.URL{Scheme: "http", Host: "127.0.0.1:1"}, "")
	require.Equal(t, 403, ask(hook, "POST", "/hook", here, "{}", "Origin", "https://evil.example"))
	require.Equal(t, 200, ask(p, "GET", sessions, here, "", "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "navigate",
		"Sec-Fetch-Dest", "document"),
		"a link opens a page of the proxy")
}
