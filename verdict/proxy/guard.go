package proxy

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/forgerun/forgerun/internal/localhosts"
)

// AllowHosts sets further names by which requests may ask for a proxy that listens on loopback.
func (p *Proxy) AllowHosts(names ...string) { p.hosts = localhosts.ThisMachine(names...) }

// misdirected refuses a request for a host that is not this machine: a page may have its own name point here (DNS rebinding).
func (p *Proxy) misdirected(w http.ResponseWriter, r *http.Request) bool {
	if p.hosts(r.Host) || r.Host == "" && !r.ProtoAtLeast(1, 1) { // every browser sends a Host
		return false
	}
	writeProblem(w, http.StatusMisdirectedRequest, fmt.Sprintf("This proxy is for the machine that it runs on, and the request is for the "+
		"host %.100q. Call it as localhost, or start it with --allow-host.", r.Host))
	return true
}

// foreign refuses a request that a page of another origin sent.
func foreign(w http.ResponseWriter, r *http.Request) bool {
	if !localhosts.FromOtherPage(r.Method, r.Host, r.Header.Get) {
		return false
	}
	writeProblem(w, http.StatusForbidden, "A page of another site or port sent this request.")
	return true
}

// notJSON refuses a body that does not say that it is JSON: a form of any page may send others.
func notJSON(w http.ResponseWriter, r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ContentLength == 0 || kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json") {
		return false
	}
	writeProblem(w, http.StatusUnsupportedMediaType, "Send the body with Content-Type: application/json.")
	return true
}

// beyondLoopback reports whether other machines may reach a listener.
func beyondLoopback(l net.Listener) bool {
	at, ok := l.Addr().(*net.TCPAddr)
	return ok && !at.IP.IsLoopback()
}
