package proxy

import (
	"cmp"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"github.com/forgerun/forgerun/verdict/redact"
)

const dialTimeout = 10 * time.Second // time limit for connecting to other hosts

// forwarder makes the proxy a forward proxy (RFC 9110, section 3.7): clients name the host of each request. Requests to other hosts than
// the targets pass through unread.
type forwarder struct {
	ca     *authority
	opened chan net.Conn // tunnels to targets, opened by CONNECT
	done   chan struct{}
	once   sync.Once
	others httputil.ReverseProxy // proxy for requests without TLS to other hosts
}

// Forward makes p a forward proxy, for clients with an API address that cannot be changed. It returns a CA certificate in PEM, which
// clients must trust. The key of the CA exists only in memory. Requests to the targets in `further` are judged too. Their recorded paths
// begin with the host, as in "//api.example.com/jobs". Forward must be called before Server.
func (p *Proxy) Forward(further ...*url.URL) ([]byte, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	p.targets, p.sessions.further = append(p.targets, further...), map[string]bool{}
	for _, target := range further {
		p.sessions.further[origin(target)] = true
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression, transport.Proxy = true, nil
	p.forwards = &forwarder{
		ca: ca, opened: make(chan net.Conn), done: make(chan struct{}),
		others: httputil.ReverseProxy{
			Transport: transport, BufferPool: &buffers{}, FlushInterval: flushInterval, ErrorLog: p.forward.ErrorLog,
			Rewrite: func(pr *httputil.ProxyRequest) {
				keep(pr, "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto")
			},
			ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
				p.log.Warn("a host other than the target did not respond", "host", r.URL.Host, "error", redact.Keep(err.Error()))
				writeProblem(w, http.StatusBadGateway, "The host "+r.URL.Host+" did not answer.")
			},
		},
	}
	return ca.pem(), nil
}

// forwarded serves CONNECT and requests to other hosts if p is a forward proxy. It reports whether it served the request.
func (p *Proxy) forwarded(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case p.forwards == nil:
		return false
	case r.Method == http.MethodConnect:
		p.connect(w, r)
		return true
	case r.URL.Host == "":
		if c := connectionOf(r); c != nil && c.target != nil {
			r.URL.Scheme, r.URL.Host = c.target.Scheme, c.target.Host
		}
		return false
	case p.targetAt(r.URL) != nil:
		return false
	}
	p.forwards.others.ServeHTTP(w, r)
	return true
}

// asForwardProxy reports whether the client uses p as a forward proxy. A web page cannot make a browser send such requests, so they need
// no Host check.
func (p *Proxy) asForwardProxy(r *http.Request) bool {
	c := connectionOf(r)
	return p.forwards != nil && (r.URL.Host != "" || r.Method == http.MethodConnect || c != nil && c.target != nil)
}

// connect opens a tunnel. In a tunnel to a target, the proxy decrypts TLS with its own certificate. Other tunnels pass through unread.
func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	target := cmp.Or(p.targetAt(&url.URL{Scheme: "https", Host: r.Host}), p.targetAt(&url.URL{Scheme: "http", Host: r.Host}))
	var beyond net.Conn
	if target == nil {
		dialer := net.Dialer{Timeout: dialTimeout}
		var err error
		if beyond, err = dialer.DialContext(r.Context(), "tcp", r.Host); err != nil {
			writeProblem(w, http.StatusBadGateway, "The host "+r.Host+" cannot be reached.")
			return
		}
	}
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		if beyond != nil {
			_ = beyond.Close()
		}
		writeProblem(w, http.StatusHTTPVersionNotSupported, "Send the CONNECT request over HTTP/1.1.")
		return
	}
	_ = client.SetDeadline(time.Time{}) // remove the deadline, which was only for reading the header of the CONNECT request
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		_ = client.Close()
		if beyond != nil {
			_ = beyond.Close()
		}
		return
	}
	client = &bufferedConn{client, target, io.MultiReader(io.LimitReader(buffered, int64(buffered.Reader.Buffered())), client)}
	switch {
	case target == nil:
		passThrough(client, beyond)
	case target.Scheme == "https":
		ca := p.forwards.ca
		config, err := ca.sign(ca.cert.NotAfter, target.Hostname())
		if err != nil {
			p.log.Error("cannot create a certificate for a target", "error", err)
			_ = client.Close()
			return
		}
		p.forwards.serve(tls.Server(client, config))
	default:
		p.forwards.serve(client)
	}
}

type bufferedConn struct {
	net.Conn
	target *url.URL  // nil for another host
	read   io.Reader // the bytes that were already read, and then the rest
}

func (b *bufferedConn) Read(p []byte) (int, error) { return b.read.Read(p) }

func (b *bufferedConn) NetConn() net.Conn { return b.Conn }

func (b *bufferedConn) CloseWrite() error { return closeWrite(b.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

func passThrough(client, beyond net.Conn) {
	defer func() { _, _ = client.Close(), beyond.Close() }()
	var both sync.WaitGroup
	for _, way := range []struct{ to, from net.Conn }{{beyond, client}, {client, beyond}} {
		both.Go(func() {
			_, _ = io.Copy(way.to, way.from)
			_ = closeWrite(way.to)
		})
	}
	both.Wait()
}

func (f *forwarder) serve(c net.Conn) {
	select {
	case f.opened <- c:
	case <-f.done:
		_ = c.Close()
	}
}

// Accept implements net.Listener. It returns the next connection that a client opened by CONNECT.
func (f *forwarder) Accept() (net.Conn, error) {
	select {
	case c := <-f.opened:
		return c, nil
	case <-f.done:
		return nil, net.ErrClosed
	}
}

func (f *forwarder) Close() error {
	f.once.Do(func() { close(f.done) })
	return nil
}

// Addr implements net.Listener. The address is empty, because f has no port.
func (f *forwarder) Addr() net.Addr { return &net.TCPAddr{} }

// tunnelTo returns the target of a connection that was opened by CONNECT, or nil for other connections.
func tunnelTo(c net.Conn) *url.URL {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	if opened, ok := c.(*bufferedConn); ok {
		return opened.target
	}
	return nil
}
