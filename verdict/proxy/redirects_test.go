package proxy_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// A client follows a redirect to another path with method and body. A client that follows it with GET loses the order, even if it sends an
// equal order next.
func TestRedirectsOfTargets(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle("POST /old", http.RedirectHandler("/new?v=2", http.StatusPermanentRedirect))
	mux.HandleFunc("/new", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	follows := &http.Client{}
	for name, c := range map[string]struct {
		want verdict.Status
		does func(b *bench)
	}{
		"followed": {verdict.OK, func(b *bench) {
			a, err := follows.Post(b.url+"/old", "application/json", strings.NewReader(`{"a": 1}`))
			require.NoError(t, err)
			require.Equal(t, http.StatusNoContent, a.StatusCode)
			require.NoError(t, a.Body.Close())
		}},
		"followed as GET": {verdict.Warn, func(b *bench) {
			b.do("POST", "/old", `{"a": 1}`)
			b.do("GET", "/new?v=2", "")
			b.do("POST", "/new?v=2", `{"a": 1}`)
		}},
		"not followed": {verdict.Warn, func(b *bench) { b.do("POST", "/old", `{"a": 1}`) }},
	} {
		b := newBench(t, "", mux)
		id := b.session("")
		c.does(b)
		_, rules := b.verdict(id)
		require.Equal(t, c.want, rules["redirects"].Status, name)
	}
}
