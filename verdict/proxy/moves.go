package proxy

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/verdict/redact"
)

const (
	moveLasts = time.Minute
	maxMoves  = 1000
)

// moves remembers redirects to another host name of this machine, which is another origin for the client. Clients should not send their
// credentials to another origin. For a client that sends no credentials, the proxy adds the credentials of the redirected request. So the
// read succeeds.
type moves struct {
	mu  sync.Mutex
	all map[string]move // redirects by target host and path
}

type move struct {
	as    http.Header // credentials
	until time.Time
}

// to returns the address of the requested resource at another host, and remembers the credentials of the request.
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

// restore adds the remembered credentials to a read that follows a redirect without credentials.
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
