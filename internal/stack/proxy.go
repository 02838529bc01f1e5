package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// proxy forwards TCP connections to a server, and does faults to them. A library
// does not count the connections that each fault has hit (docs/decisions/0024), nor
// does it reach an API whose processes come and go at changing addresses.
type proxy struct {
	name     string
	dial     func(context.Context) (net.Conn, error)
	listener net.Listener
	ctx      context.Context // ends with close
	cancel   context.CancelFunc
	running  sync.WaitGroup // the accepting goroutine and those of all links

	fault atomic.Pointer[delay] // nil: nothing is delayed

	mu    sync.Mutex
	links []*link // connections with both sides open, oldest first
}

const (
	// dialPatience bounds how long a client's connection waits for the server's.
	dialPatience = 2 * time.Second
	// bufferSize is the longest piece that is read at once; each connection has two buffers.
	bufferSize = 8 << 10
	// retryPeriod is how long to wait after a connection that failed.
	retryPeriod = 25 * time.Millisecond
)

// anyAddress is a free port of 127.0.0.1.
const anyAddress = "127.0.0.1:0"

// link is one connection through a proxy: the client's and the server's side.
type link struct {
	client, server net.Conn
	once           sync.Once
	gone           chan struct{}         // closed when both sides are
	delayed        atomic.Pointer[delay] // the latest fault that delayed a piece
	losing         atomic.Bool           // the next answer is lost, so the client does not learn what the server did
}

// cut resets both sides, and what is on its way is lost. It reports whether the link was still there.
func (l *link) cut() bool { return l.end(reset) }

// end closes both sides.
func (l *link) end(one func(net.Conn)) (was bool) {
	l.once.Do(func() {
		was = true
		one(l.client)
		one(l.server)
		close(l.gone)
	})
	return was
}

// reset closes a connection without delivering what is still on its way.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // it is closed at any rate
	}
	_ = conn.Close()
}

// newProxy begins to listen on an address, which it keeps.
func newProxy(name, address string, dial func(context.Context) (net.Conn, error)) (*proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &proxy{name: name, dial: dial, listener: listener}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// dialer connects to a server with a fixed address.
func dialer(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialPatience)
		defer cancel()
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		switch {
		case p.ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case err != nil: // such as too many open files, for the moment
			Sleep(p.ctx, retryPeriod)
		default:
			p.running.Go(func() { p.carry(conn) })
		}
	}
}

// carry is one connection from beginning to end. If the server cannot be reached, the client is reset.
func (p *proxy) carry(client net.Conn) {
	server, err := p.dial(p.ctx)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server, gone: make(chan struct{})}
	p.mu.Lock()
	p.links = append(p.links, l)
	p.mu.Unlock()
	if p.ctx.Err() != nil { // close may not have seen it
		l.cut()
	}
	defer p.remove(l)
	var answers sync.WaitGroup
	answers.Go(func() { p.pass(l, client, server, true) })
	p.pass(l, server, client, false)
	answers.Wait()
	l.end(func(conn net.Conn) { _ = conn.Close() })
}

// pass copies one direction, piece by piece, until it ends or the link does.
func (p *proxy) pass(l *link, to, from net.Conn, answers bool) {
	piece := make([]byte, bufferSize)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if !p.hold(l) || answers && l.losing.CompareAndSwap(true, false) {
				l.cut()
				return
			}
			if _, err := to.Write(piece[:n]); err != nil {
				l.cut()
				return
			}
		}
		if errors.Is(err, io.EOF) {
			if half, ok := to.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the other side is gone otherwise
			}
			return
		}
		if err != nil {
			l.cut()
			return
		}
	}
}

// hold delays a piece while a fault wants it, and reports whether the link is still there.
func (p *proxy) hold(l *link) bool {
	d := p.fault.Load()
	if d == nil {
		return true
	}
	if l.delayed.Swap(d) != d {
		d.hit.Add(1)
	}
	select {
	case <-time.After(d.by):
	case <-d.over:
	case <-l.gone:
		return false
	}
	return true
}

// delay is a fault of a while: each piece of each connection comes later.
type delay struct {
	by   time.Duration
	over chan struct{} // closed when it ends
	hit  atomic.Int64  // connections that had a piece delayed
}

// open returns the connections with both sides open, oldest first.
func (p *proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.links)
}

func (p *proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = slices.DeleteFunc(p.links, func(other *link) bool { return other == l })
}

// close ends the proxy with all connections. It may be called again.
func (p *proxy) close() {
	p.cancel()
	_ = p.listener.Close()
	for _, l := range p.open() {
		l.cut()
	}
	p.running.Wait()
}

// proxies are those that faults may be done to.
func (s *Stack) proxies() []*proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faulty)
}

// ReceiverURL gives the address at which the service reaches a webhook receiver that listens at upstream
// (http://127.0.0.1:9000): that of a proxy of its own with Faults, else upstream itself.
func (s *Stack) ReceiverURL(upstream string) (string, error) {
	if !s.o.Faults {
		return upstream, nil
	}
	u, err := url.Parse(upstream)
	if err != nil || u.Scheme != "http" || u.Port() == "" {
		return "", fmt.Errorf("the receiver's address is %q: needed is one like http://127.0.0.1:9000", upstream)
	}
	_, done, err := s.begin(s.ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return s.throughProxy("receiver", upstream)
}

// throughProxy puts a proxy in front of the server that a URL leads to, with Faults.
func (s *Stack) throughProxy(name, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || !s.o.Faults {
		return address, err
	}
	u.Host, err = s.addProxy(name, anyAddress, dialer(u.Host))
	return u.String(), err
}

// addProxy starts a proxy that faults may be done to, and gives its address.
func (s *Stack) addProxy(name, address string, dial func(context.Context) (net.Conn, error)) (string, error) {
	p, err := newProxy(name, address, dial)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.faulty = append(s.faulty, p)
	s.mu.Unlock()
	return p.address(), nil
}
