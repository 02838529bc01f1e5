package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/proxy"
)

type bench struct {
	t      testing.TB
	url    string
	client *http.Client
}

func benchAt(t testing.TB, address string) *bench {
	t.Helper()
	return &bench{t, "http://" + address, plain(t)}
}

func newBench(t testing.TB, description string, target http.Handler) *bench {
	t.Helper()
	return benchOf(t, newProxy(t, serverOf(t, target), description), false)
}

// The client does not follow redirects.
func benchOf(t testing.TB, p *proxy.Proxy, secure bool) *bench {
	t.Helper()
	scheme, transport := "http://", &http.Transport{ForceAttemptHTTP2: true}
	if secure {
		scheme, transport.TLSClientConfig = "https://", trusting(t, p)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &bench{t, scheme + listen(t, p), client}
}

func (b *bench) byHTTP2() {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	b.t.Cleanup(transport.CloseIdleConnections)
	b.client = &http.Client{Transport: transport, CheckRedirect: b.client.CheckRedirect}
}

func serverOf(t testing.TB, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// `description` is the name of a ready-made description, or YAML. It may be "".
func newProxy(t testing.TB, target, description string) *proxy.Proxy {
	t.Helper()
	a, err := api.Load(description)
	if err != nil {
		a, err = api.Parse([]byte(description))
	}
	require.NoError(t, err)
	return proxy.New(must(url.Parse(target)), a, slog.New(slog.DiscardHandler))
}

func listen(t testing.TB, p *proxy.Proxy) (address string) {
	t.Helper()
	server := p.Server()
	l, err := p.Listen("127.0.0.1:0")
	require.NoError(t, err)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return l.Addr().String()
}

func trusting(t testing.TB, p *proxy.Proxy) *tls.Config {
	t.Helper()
	authority, err := p.UseTLS("")
	require.NoError(t, err)
	trusted := x509.NewCertPool()
	require.True(t, trusted.AppendCertsFromPEM(authority))
	return &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
}

type response struct {
	*http.Response
	text string
	err  error
}

func (b *bench) do(method, path, body string, headers ...string) response {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	require.NoError(b.t, err)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := b.client.Do(r)
	if err != nil {
		return response{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return response{res, string(text), err}
}

func (b *bench) own(method, path, body string, status int) []byte {
	b.t.Helper()
	a := b.do(method, "/-/forgerun/v1/testbed/"+path, body, "Content-Type", "application/json")
	require.NoError(b.t, a.err)
	require.Equal(b.t, status, a.StatusCode, a.text)
	return []byte(a.text)
}

func (b *bench) session(body string) (id string) {
	b.t.Helper()
	var n verdict.Session
	require.NoError(b.t, json.Unmarshal(b.own("POST", "sessions", body, 201), &n))
	return n.ID
}

func (b *bench) verdict(id string) (v verdict.Verdict, results map[string]verdict.Result) {
	b.t.Helper()
	b.own("POST", "sessions/"+id+"/end", "", 200)
	require.NoError(b.t, json.Unmarshal(b.own("GET", "sessions/"+id+"/verdict", "", 200), &v))
	results = map[string]verdict.Result{}
	for _, r := range v.Results {
		results[r.Rule] = r
	}
	return v, results
}

func (b *bench) faults(rules ...fault.Rule) {
	b.t.Helper()
	text, err := json.Marshal(rules)
	require.NoError(b.t, err)
	b.own("PUT", "faults", string(text), 200)
}

func nth(operation string, n int, e fault.Effect) fault.Rule {
	return fault.Rule{Match: fault.Match{Operation: operation, Nth: n}, Effect: e}
}

// things is an API that accepts submissions with 202 and the headers that `at` returns. Every third read shows an ended operation.
func things(at func(r *http.Request, id int64) http.Header) http.Handler {
	var made atomic.Int64
	var reads atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /things", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for name, all := range at(r, made.Add(1)) {
			w.Header()[name] = all
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"accepted": true}`)
	})
	mux.HandleFunc("GET /operations/{id}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("ETag", `"1"`)
		status := "Running"
		if reads.Add(1)%3 == 0 {
			status = "Succeeded"
		}
		_, _ = fmt.Fprintf(w, `{"status": %q}`, status)
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.Copy(w, r.Body)
	})
	mux.HandleFunc("GET /events", events)
	return mux
}

func location(r *http.Request, id int64) http.Header {
	return http.Header{"Location": {fmt.Sprintf("http://%s/operations/%d", r.Host, id)}}
}

func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	from := 1
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		_, _ = fmt.Sscan(last, &from)
		from++
	}
	for n := from; n <= 5; n++ {
		_, _ = fmt.Fprintf(w, "id: %d\r\ndata: {\"n\": %d}\r\n\r\n", n, n)
	}
}
