package proxy

import (
	"fmt"
	"mime"
	"net"
	"net/http"
	"strings"

	"github.com/forgerun/forgerun/internal/localhosts"
)

// AllowHosts sets the additional host names that a proxy on loopback accepts.
func (p *Proxy) AllowHosts(names ...string) { p.hosts = localhosts.ThisMachine(names...) }

// misdirected refuses a request with the Host of another machine. A web page may make its own host name point here (DNS rebinding).
func (p *Proxy) misdirected(w http.ResponseWriter, r *http.Request) bool {
	if p.hosts(r.Host) || r.Host == "" && !r.ProtoAtLeast(1, 1) { // no browser omits the Host
		return false
	}
	writeProblem(w, http.StatusMisdirectedRequest, fmt.Sprintf("This proxy serves only its own machine, but the request names the "+
		"host %.100q. Use localhost, or start the proxy with --allow-host.", r.Host))
	return true
}

func foreign(w http.ResponseWriter, r *http.Request) bool {
	if !localhosts.FromOtherPage(r.Method, r.Host, r.Header.Get) {
		return false
	}
	writeProblem(w, http.StatusForbidden, "A page of another site or port sent this request.")
	return true
}

// notJSON refuses a body without a JSON content type, because a form on any web page can send bodies of other types.
func notJSON(w http.ResponseWriter, r *http.Request) bool {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ContentLength == 0 || kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json") {
		return false
	}
	writeProblem(w, http.StatusUnsupportedMediaType, "Send the body with Content-Type: application/json.")
	return true
}

func beyondLoopback(l net.Listener) bool {
	at, ok := l.Addr().(*net.TCPAddr)
	return ok && !at.IP.IsLoopback()
}
