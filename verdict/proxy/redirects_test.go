package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// The proxy records the new address of a redirect, so the verdict knows which request followed the redirect.
func TestRedirectsOfTargets(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle("POST /old", http.RedirectHandler("/new?v=2", http.StatusPermanentRedirect))
	mux.HandleFunc("/new", func(http.ResponseWriter, *http.Request) {})
	for next, want := range map[string]verdict.Status{"POST /new?v=2": verdict.OK, "GET /new?v=2": verdict.Warn, "POST /other": verdict.Warn} {
		b := newBench(t, "", mux)
		id := b.session("")
		b.do("POST", "/old", `{"a": 1}`)
		method, path, _ := strings.Cut(next, " ")
		b.do(method, path, map[string]string{"POST": `{"a": 1}`}[method])
		_, rules := b.verdict(id)
		require.Equal(t, want, rules["redirects"].Status, next)
	}
}

// A 303 on a read may mean that the job ended, so the profile `moved` does not inject a 303.
func TestReadsAreNotRedirectedBy303(t *testing.T) {
	t.Parallel()
	b := newBench(t, "", things(location))
	b.session(`{"profile": "moved", "seed": 1}`)
	for range 2 {
		b.do("POST", "/things", "{}")
	}
	require.Equal(t, 202, b.do("POST", "/things", "{}").StatusCode)
	moved := map[int]int{}
	for range 3 {
		moved[b.do("GET", "/operations/1", "").StatusCode]++
	}
	require.Equal(t, map[int]int{307: 2, 308: 1}, moved)
}
