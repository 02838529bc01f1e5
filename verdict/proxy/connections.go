package proxy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

const (
	headerTimeout = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	halfTimeout   = 10 * time.Second // how long a half-closed connection stays open, so that the client can send another request
)

// Server returns the HTTP/1.1 and HTTP/2 server of the proxy.
func (p *Proxy) Server() *http.Server {
	var connections atomic.Uint64
	var open sync.Map // open connections
	s := &http.Server{
		Handler: p, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, Protocols: new(http.Protocols),
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), DisableGeneralOptionsHandler: true,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			ours := &connection{Conn: c, below: below(c), number: connections.Add(1), target: tunnelTo(c)}
			open.Store(c, ours)
			return context.WithValue(ctx, connKey{}, ours)
		},
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateIdle:
				if ours, ok := open.Load(c); ok && ours.(*connection).half.Swap(false) {
					ours.(*connection).end()
				}
			case http.StateClosed, http.StateHijacked:
				open.Delete(c)
			case http.StateNew, http.StateActive:
			}
		},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	p.server = s
	return s
}

// Listen opens the socket of the server. The socket may refuse connections because of a fault. The server then closes idle connections
// too.
func (p *Proxy) Listen(address string) (net.Listener, error) {
	socket, err := wire.Listen(address)
	if err != nil {
		return nil, err
	}
	p.open = beyondLoopback(socket)
	if p.forwards != nil { // the socket never refuses connections, because that would affect other hosts
		go func() { _ = p.server.Serve(p.forwards) }() // runs until Shutdown or Close
		return wire.Watched{Listener: socket}, nil
	}
	p.socket = socket
	socket.Changed = func(open bool) { p.server.SetKeepAlivesEnabled(open) }
	if p.tls != nil {
		return tls.NewListener(wire.Watched{Listener: socket}, p.tls.config()), nil
	}
	return wire.Watched{Listener: socket}, nil
}

type connection struct {
	net.Conn
	below    *wire.Conn // TCP connection below TLS; nil if p.Listen did not open the socket
	number   uint64
	target   *url.URL // target of the tunnel; nil without a tunnel
	requests atomic.Int64
	next     atomic.Pointer[fault.Effect] // fault of the next request; may be nil
	half     atomic.Bool                  // whether to half-close the connection after the response
}

func (c *connection) end() {
	if secured, ok := c.Conn.(*tls.Conn); ok {
		_ = secured.CloseWrite()
	}
	if c.below != nil {
		_ = c.below.CloseWrite()
	}
	time.AfterFunc(halfTimeout, func() { _ = c.Close() })
}

type connKey struct{}

// connectionOf returns the connection of a request, or nil if the server is not from p.Server.
func connectionOf(r *http.Request) *connection {
	c, _ := r.Context().Value(connKey{}).(*connection)
	return c
}

// below returns the TCP connection under TLS and a tunnel. It returns nil if the TCP connection is not a *wire.Conn.
func below(c net.Conn) *wire.Conn {
	for {
		if ours, ok := c.(*wire.Conn); ok {
			return ours
		}
		above, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return nil
		}
		c = above.NetConn()
	}
}

// fault returns the fault of a request. The fault comes from the rules, or from an earlier request on the connection (NextRequest).
func (p *Proxy) fault(in *session, operation string, r *http.Request, body *requestBody) *fault.Effect {
	subject := func() string { return p.subject(r, body) }
	c := connectionOf(r)
	if c == nil {
		return p.sessions.fault(in, operation, r, subject)
	}
	if left := c.next.Swap(nil); left != nil {
		return left
	}
	e := p.sessions.fault(in, operation, r, subject)
	if e == nil || e.NextRequest == "" {
		return e
	}
	next := e.OnNext()
	if e.NextRequest == fault.CloseHalf {
		if r.ProtoMajor != 1 { // a connection with several streams cannot be half closed
			if rest := *e; rest != (fault.Effect{NextRequest: fault.CloseHalf}) {
				rest.NextRequest = ""
				return &rest
			}
			return nil
		}
		next = &fault.Effect{Close: fault.CloseBefore}
		c.half.Store(true)
	}
	c.next.Store(next)
	return e
}
