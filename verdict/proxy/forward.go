package proxy

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	"github.com/forgerun/forgerun/verdict/wire"
)

// rewrite builds the request for the target from the client's request, without hop-by-hop headers. A target without TLS is probably in
// development. Such a target gets the client's Host, so that the addresses in responses lead through the proxy. The target must not
// compress responses, because the proxy reads them.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL = p.at(in)
	if out.Host = ""; out.URL.Scheme == "http" {
		out.Host = in.Host
	}
	keep(pr, "Forwarded", "X-Forwarded-For")
	if p.forwards == nil {
		pr.SetXForwarded() // appends to X-Forwarded-For
	}
	keep(pr, "X-Forwarded-Host", "X-Forwarded-Proto")
	if out.Header.Get("Accept-Encoding") != "" {
		out.Header.Set("Accept-Encoding", "identity")
	}
	out.Header.Del(sessionHeader)
	if strings.EqualFold(out.Header.Get("Upgrade"), "h2c") {
		out.Header.Del("Upgrade")
		out.Header.Del("Connection")
	}
	if b, ok := in.Body.(*requestBody); ok {
		out.Trailer = b.trailer
		return
	}
	length, said := in.Header["Content-Length"]
	switch posts := in.Method == http.MethodPost || in.Method == http.MethodPut || in.Method == http.MethodPatch; {
	case said && !posts:
		out.Header["content-length"] = length // lower case, because net/http drops "Content-Length"
	case !said && posts && in.ProtoMajor == 1: // send no length; net/http would add a Content-Length of 0
		out.ContentLength, out.TransferEncoding = -1, []string{"identity"}
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("")), nil }
		out.Body, _ = out.GetBody()
	}
}

// keep copies headers of the client that httputil.ReverseProxy removes.
func keep(pr *httputil.ProxyRequest, names ...string) {
	for _, name := range names {
		if all, ok := pr.In.Header[name]; ok {
			pr.Out.Header[name] = all
		}
	}
}

// at returns the URL to which the proxy sends a request. The path and the query are exactly as the client wrote them.
func (p *Proxy) at(in *http.Request) *url.URL {
	to, target := *in.URL, p.targetFor(in.URL)
	to.Scheme, to.Host, to.User = target.Scheme, target.Host, nil
	path, _, _ := strings.Cut(in.RequestURI, "?")
	switch {
	case !strings.HasPrefix(path, "/"): // the request line has a whole URL
		if in.URL.Scheme == target.Scheme && in.URL.User == nil {
			to.Opaque = strings.TrimPrefix(path[len(in.URL.Scheme):], ":")
		}
	case !strings.HasPrefix(path, "//"): // Opaque keeps the path as written, but a path that begins with "//" would be read as a host
		to.Opaque = path
	}
	return &to
}

// passing is the writer of a response that the proxy passes on without reading it.
type passing struct {
	http.ResponseWriter
	proxy   *Proxy
	request *http.Request
}

// Unwrap allows a hijack of the connection.
func (w *passing) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *passing) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.proxy.asSent(w.Header(), status, w.request)
	}
	w.ResponseWriter.WriteHeader(status)
}

// unchanged prevents net/http from changing the header of a response.
func unchanged(h http.Header, status int) {
	for _, name := range []string{"Date", "Content-Type"} { // net/http adds missing ones
		if _, said := h[name]; !said {
			h[name] = nil
		}
	}
	if status == http.StatusNotModified || status == http.StatusNoContent { // lower case, because net/http drops the canonical names
		for _, name := range []string{"Content-Type", "Content-Length"} {
			if all := h[name]; len(all) > 0 {
				delete(h, name)
				h[strings.ToLower(name)] = all
			}
		}
		h["Content-Type"] = nil
	}
}

var addressHeaders = []string{"Location", "Content-Location", "Operation-Location", "Azure-Asyncoperation"}

// asSent keeps the header of a response unchanged, except that addresses of the target lead through the proxy.
func (p *Proxy) asSent(h http.Header, status int, in *http.Request) {
	unchanged(h, status)
	for _, name := range addressHeaders {
		for i, value := range h[name] {
			h[name][i] = p.through(value, in)
		}
	}
	for i, value := range h["Link"] {
		h["Link"][i] = p.linksThrough(value, in)
	}
}

func (p *Proxy) linksThrough(header string, in *http.Request) string {
	var b strings.Builder
	last := 0
	for link := range wire.Links(header) {
		b.WriteString(header[last:link.At])
		b.WriteString(p.through(link.Target, in))
		last = link.At + len(link.Target)
	}
	b.WriteString(header[last:])
	return b.String()
}

// through returns the proxy's address for an address of the target, and other addresses unchanged. A target that receives the client's Host
// header does not know that the proxy uses TLS. The target may then write the proxy's own address with http. In this case, the result has
// the right scheme.
func (p *Proxy) through(address string, in *http.Request) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil {
		return address
	}
	scheme := "http"
	if in.TLS != nil {
		scheme = "https"
	}
	relative, target := u.Scheme == "", p.targetFor(in.URL)
	if relative {
		u.Scheme = target.Scheme
	}
	misled := target.Scheme == "http" && u.Scheme == "http" && strings.EqualFold(u.Host, in.Host)
	if in.Host == "" || !misled && origin(u) != origin(target) {
		return address
	}
	rest := address[strings.Index(address, "//")+2:]
	rest = rest[strings.IndexFunc(rest+"/", func(c rune) bool { return strings.ContainsRune("/?#", c) }):]
	if relative {
		return "//" + in.Host + rest
	}
	return scheme + "://" + in.Host + rest
}

func (p *Proxy) targetAt(u *url.URL) *url.URL {
	for _, target := range p.targets {
		if origin(target) == origin(u) {
			return target
		}
	}
	return nil
}

// targetFor returns the target of an address. Addresses of the proxy itself belong to the first target.
func (p *Proxy) targetFor(u *url.URL) *url.URL { return cmp.Or(p.targetAt(u), p.targets[0]) }

// origin returns the origin of an address (RFC 6454).
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
