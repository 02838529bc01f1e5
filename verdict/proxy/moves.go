package proxy

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/verdict/redact"
)

// Limits of remembered redirects.
const (
	moveLasts = time.Minute
	maxMoves  = 1000
)

// moves remembers the proxy's own redirects to another name of this machine, so to another origin. Clients should not send their
// credentials there. A read without credentials gets those of the redirected request, as if its address were signed.
type moves struct {
	mu  sync.Mutex
	all map[string]move // by host and path
}

type move struct {
	as    http.Header // credentials
	until time.Time
}

// to returns the address of the request at another host, and remembers its credentials.
func (m *moves) to(r *http.Request, host string) string {
	as, size := http.Header{}, len(r.URL.RequestURI())
	for name, all := range r.Header {
		if redact.Secret(name) {
			as[name] = all
			size += len(strings.Join(all, ""))
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(m.all, func(_ string, old move) bool { return now.After(old.until) })
	if m.all == nil {
		m.all = map[string]move{}
	}
	if len(as) > 0 && len(m.all) < maxMoves && size <= maxProbe {
		m.all[host+r.URL.RequestURI()] = move{as, now.Add(moveLasts)}
	}
	scheme := "http://"
	if r.TLS != nil {
		scheme = "https://"
	}
	return scheme + host + r.URL.RequestURI()
}

// restore adds the remembered credentials to a read that followed a redirect without any.
func (m *moves) restore(r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return
	}
	m.mu.Lock()
	from, ok := m.all[r.Host+r.URL.RequestURI()]
	m.mu.Unlock()
	if !ok || time.Now().After(from.until) {
		return
	}
	for name := range r.Header {
		if redact.Secret(name) {
			return
		}
	}
	maps.Copy(r.Header, from.as)
}
