package stack

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// proxy forwards TCP connections to a server and injects faults into them. A library such as toxiproxy can neither drop a single
// response nor count the affected connections.
type proxy struct {
	name     string
	dial     func(context.Context) (net.Conn, error)
	listener net.Listener
	ctx      context.Context // canceled by p.close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	fault    atomic.Pointer[delay] // nil: nothing is delayed

	mu    sync.Mutex
	links []*link // connections with both sides open, oldest first
}

const (
	dialPatience = 2 * time.Second // limit for connecting to the server
	retryPeriod  = 25 * time.Millisecond
	anyAddress   = loopback + ":0"
)

// link is one connection through a proxy: the client's and the server's side.
type link struct {
	client, server net.Conn
	once           sync.Once
	gone           chan struct{}         // closed when both sides are closed
	delayed        atomic.Pointer[delay] // the latest fault that delayed data of this link
	losing         atomic.Bool           // the connection is cut when the next response arrives, so the client does not get the response
}

// delay is a fault that delays each piece of data by the duration `by`. When the fault ends, all data that still waits is sent at once.
type delay struct {
	by   time.Duration
	over chan struct{}
	hit  atomic.Int64 // number of connections with delayed data
}

// cut resets both connections, so data in transit is lost. It returns false if the link was closed already.
func (l *link) cut() bool { return l.end(reset) }

func (l *link) end(one func(net.Conn)) (was bool) {
	l.once.Do(func() {
		was = true
		one(l.client)
		one(l.server)
		close(l.gone)
	})
	return was
}

// reset closes a connection and drops data in transit.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

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

func dialer(address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{Timeout: dialPatience}).DialContext(ctx, "tcp", address)
	}
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		switch {
		case err == nil:
			p.running.Go(func() { p.carry(conn) })
		case p.ctx.Err() != nil:
			return
		default: // temporary error, such as too many open files
			Sleep(p.ctx, retryPeriod)
		}
	}
}

// carry forwards one connection, and resets it if the server cannot be reached.
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
	if p.ctx.Err() != nil { // if p.close ran before the link was added to p.links, it did not close the link
		l.cut()
	}
	var answers sync.WaitGroup
	answers.Go(func() { p.pass(l, client, server, true) })
	p.pass(l, server, client, false)
	answers.Wait()
	l.end(func(conn net.Conn) { _ = conn.Close() })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.links = slices.DeleteFunc(p.links, func(other *link) bool { return other == l })
}

func (p *proxy) pass(l *link, to, from net.Conn, answers bool) {
	piece := make([]byte, 8<<10)
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
		if half, ok := to.(interface{ CloseWrite() error }); ok && errors.Is(err, io.EOF) {
			_ = half.CloseWrite() // fails if the other side is gone
			return
		}
		if err != nil {
			l.cut()
			return
		}
	}
}

// hold waits if the current fault delays data. It returns false if the link is closed during the wait.
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

func (p *proxy) open() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.links)
}

func (p *proxy) close() {
	p.cancel()
	_ = p.listener.Close()
	for _, l := range p.open() {
		l.cut()
	}
	p.running.Wait()
}

func (s *Stack) faulty() []*proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.proxies)
}

// ReceiverURL returns the address at which the service reaches the webhook receiver at upstream, such as http://127.0.0.1:9000. If
// Options.Faults is set, this is the address of a proxy. Otherwise it is `upstream`.
func (s *Stack) ReceiverURL(upstream string) (string, error) {
	return s.throughProxy("receiver", upstream)
}

func (s *Stack) throughProxy(name, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || !s.o.Faults {
		return address, err
	}
	u.Host, err = s.addProxy(name, anyAddress, dialer(u.Host))
	return u.String(), err
}

func (s *Stack) addProxy(name, address string, dial func(context.Context) (net.Conn, error)) (string, error) {
	p, err := newProxy(name, address, dial)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies = append(s.proxies, p)
	return p.address(), nil
}
