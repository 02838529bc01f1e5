package proxy_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/proxy"
)

func withKey() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer k" && r.Header.Get("X-Api-Key") != "k" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"at": %q}`, r.Method+" "+r.URL.RequestURI())
	})
}

// A redirect to another name of the machine leads to the same resource, even if the client sends no credentials there. If the client sends
// credentials, they pass unchanged.
func TestRedirectsToAnotherOrigin(t *testing.T) {
	t.Parallel()
	for _, status := range fault.Moves {
		for _, version := range []string{"HTTP/1.1", "HTTP/2.0", "TLS", "TLS and HTTP/2.0"} {
			for _, name := range []string{"127.0.0.1", "localhost"} {
				t.Run(fmt.Sprint(status, " ", version, " ", name), func(t *testing.T) {
					t.Parallel()
					secure := strings.HasPrefix(version, "TLS")
					b := benchOf(t, newProxy(t, serverOf(t, withKey()), ""), secure)
					other := map[string]string{"127.0.0.1": "localhost", "localhost": "127.0.0.1"}[name]
					there := strings.Replace(b.url, "127.0.0.1", other, 1)
					b.url = strings.Replace(b.url, "127.0.0.1", name, 1)
					if version == "HTTP/2.0" {
						b.byHTTP2()
					} else if secure {
						b.client.Transport.(*http.Transport).ForceAttemptHTTP2 = version != "TLS"
					}
					b.faults(nth("GET /{any...}", 1, fault.Effect{Moved: status, OtherHost: true}))
					const path = "/a%2Fb/c?d=e&f"
					a := b.do("GET", path, "", "Authorization", "Bearer k")
					require.NoError(t, a.err)
					require.Equal(t, status, a.StatusCode)
					require.Equal(t, there+path, a.Header.Get("Location"))
					require.Equal(t, strings.Contains(version, "2"), a.ProtoMajor == 2)
					at := func(url, path string, headers ...string) int {
						elsewhere := &bench{t, url, b.client}
						a := elsewhere.do("GET", path, "", headers...)
						require.NoError(t, a.err)
						return a.StatusCode
					}
					require.Equal(t, 200, at(there, path))
					require.Equal(t, 200, at(there, path), "a client may retry")
					require.Equal(t, 401, at(there, path, "Authorization", "Bearer other"))
					require.Equal(t, 401, at(there, path, "Cookie", "a=1"))
					require.Equal(t, 401, at(there, "/other"))
					require.Equal(t, 401, at(b.url, path))
				})
			}
		}
	}
}

// The proxy knows no other name for a host that is not loopback, so it redirects to the same address. The proxy never adds credentials to
// writes.
func TestRedirectsElsewhere(t *testing.T) {
	t.Parallel()
	p := newProxy(t, serverOf(t, withKey()), "")
	p.AllowHosts("proxy.example")
	b := benchOf(t, p, false)
	b.faults(fault.Rule{Match: fault.Match{Nth: 1, Times: 2}, Effect: fault.Effect{Moved: 308, OtherHost: true}})
	c := dial(t, b.url[len("http://"):])
	c.send("GET /x?y HTTP/1.1\r\nHost: proxy.example:1\r\nConnection: close\r\n\r\n")
	require.Equal(t, "/x?y", fields(c.all()).Get("Location"))
	require.Equal(t, 308, b.do("POST", "/x", "{}", "Authorization", "Bearer k").StatusCode)
	there := &bench{t, strings.Replace(b.url, "127.0.0.1", "localhost", 1), b.client}
	require.Equal(t, 401, there.do("POST", "/x", "{}").StatusCode)
}

func TestHostsAreRecorded(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/x", nil)
	for host, want := range map[string]string{"localhost:8080": "localhost:8080", "[::1]:1": "[::1]:1", "": ""} {
		r.Host = host
		require.Equal(t, want, proxy.ExchangeOf(r).Host)
	}
	r.Host = strings.Repeat("a", 1<<20)
	require.Less(t, len(proxy.ExchangeOf(r).Host), 1<<12)
}
