package conn

import (
	"container/list"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// silentGrace is how long, at shutdown, a connection on which nothing has come
// yet may still bring the request for which it was opened.
const silentGrace = 250 * time.Millisecond

// The pauses of an accept loop that finds no resources.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// logEvery bounds the lines about connections that are refused or closed.
const logEvery = 10 * time.Second

// MaxPerAddress is how many connections of one address a listener of the service takes.
const MaxPerAddress = 1000

// Limits bound the connections of a listener. The zero value bounds nothing.
type Limits struct {
	Total      func() int // at once; asked again when the process finds no more files
	PerAddress int        // of one address, loopback and Exempt aside; 0: no bound
	Exempt     Proxies
	Metrics    *Metrics
	Log        *slog.Logger
}

// Metrics count what the limits do, of all listeners of a process.
type Metrics struct {
	closed   *prometheus.CounterVec
	failures prometheus.Counter
}

// NewMetrics makes them.
func NewMetrics(f telemetry.Factory) *Metrics {
	return &Metrics{
		closed: f.Counters("connections_refused_total",
			"Connections closed because there were too many: idle ones for the sake of new ones (idle), new ones while none was idle (full), "+
				"new ones of an address that has its share (address).", []string{"reason"}, "idle", "full", "address"),
		failures: f.Counter("accept_failures_total",
			"Failures to accept a connection for lack of files or memory; each is followed by a pause."),
	}
}

// Listener makes Conns, keeps their number within limits, and survives a lack
// of files and memory. Above its limit it closes the connection that has been
// idle for longest, those first that never brought a request.
type Listener struct {
	net.Listener
	limits Limits
	once   sync.Once
	err    error
	closed chan struct{}

	mu        sync.Mutex
	total     int // bound of open, 0: none
	open      int
	addresses map[netip.Addr]int
	fresh     list.List // of Conns, idle, and never brought a request
	kept      list.List // of Conns, idle between two requests
	logged    time.Time
	unlogged  int       // connections refused or closed since
	refuses   time.Time // until then the socket is closed
}

// NewListener wraps a listener.
func NewListener(l net.Listener, limits Limits) *Listener {
	if limits.Metrics == nil {
		limits.Metrics = NewMetrics(telemetry.In(nil))
	}
	if limits.Log == nil {
		limits.Log = slog.New(slog.DiscardHandler)
	}
	wrapped := &Listener{Listener: l, limits: limits, closed: make(chan struct{}), addresses: map[netip.Addr]int{}}
	wrapped.measure()
	return wrapped
}

func (l *Listener) measure() {
	if l.limits.Total != nil {
		total := l.limits.Total()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.total = total
	}
}

// Accept waits for the next connection that may stay. It fails when the
// listener is closed or fails, and never for lack of resources.
func (l *Listener) Accept() (net.Conn, error) {
	pause := firstPause
	for {
		accepted, err := l.Listener.Accept()
		switch {
		case err == nil:
			if c := l.admit(accepted); c != nil {
				return c, nil
			}
			pause = firstPause
		case passes(err):
			l.starved(err, pause)
			select {
			case <-time.After(pause):
			case <-l.closed:
			}
			pause = min(2*pause, lastPause)
		default:
			return nil, err
		}
	}
}

// passes reports whether the cause of a failed accept ends by itself.
func passes(err error) bool {
	for _, cause := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// starved makes room: others of the process hold files too, so that the
// listener's own limit was not reached.
func (l *Listener) starved(err error, pause time.Duration) {
	l.limits.Metrics.failures.Inc()
	l.measure()
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 1 + l.open/16 {
		l.closeIdle(nil)
	}
	if pause == firstPause {
		l.limits.Log.Warn("no connection can be accepted for lack of files or memory; trying again",
			"action", "accept", "connections", l.open, "error_message", err.Error())
	}
}

// admit wraps an accepted connection, or closes it and gives nil if it is one
// too many.
func (l *Listener) admit(accepted net.Conn) *Conn {
	c := &Conn{Conn: accepted, listener: l}
	if addr := Source(AddrOf(accepted.RemoteAddr())); l.limits.PerAddress > 0 && addr.IsValid() &&
		!addr.IsLoopback() && !l.limits.Exempt.Trusts(AddrOf(accepted.RemoteAddr())) {
		c.source = addr
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	if c.source.IsValid() {
		l.addresses[c.source]++
	}
	c.enter(&l.fresh)
	if c.source.IsValid() && l.addresses[c.source] > l.limits.PerAddress {
		l.refuse(c, "address")
		return nil
	}
	if l.total > 0 && l.open > l.total && !l.closeIdle(c) {
		l.refuse(c, "full")
		return nil
	}
	return c
}

// Refuse has new connections refused for so long, if the socket can be opened again, and ends the others as soon as they are idle.
func (l *Listener) Refuse(d time.Duration) {
	socket, ok := l.Listener.(interface{ Refuse(d time.Duration) })
	if !ok {
		return
	}
	socket.Refuse(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = time.Now().Add(d)
	for _, idle := range []*list.List{&l.fresh, &l.kept} {
		for e := idle.Front(); e != nil; e = idle.Front() {
			l.end(e.Value.(*Conn))
		}
	}
}

// end closes an idle connection.
func (l *Listener) end(c *Conn) {
	l.forget(c)
	_ = c.Conn.Close()
}

// closeIdle closes the connection that has been idle for longest, but not the
// new one; it reports whether there was one.
func (l *Listener) closeIdle(fresh *Conn) bool {
	for _, idle := range []*list.List{&l.fresh, &l.kept} {
		if first := idle.Front(); first != nil && first.Value != fresh {
			l.refuse(first.Value.(*Conn), "idle")
			return true
		}
	}
	return false
}

// refuse closes a connection that is one too many.
func (l *Listener) refuse(c *Conn, reason string) {
	l.end(c)
	l.limits.Metrics.closed.WithLabelValues(reason).Inc()
	l.unlogged++
	if now := time.Now(); now.Sub(l.logged) >= logEvery {
		l.limits.Log.Warn("connections are closed because there are too many", "action", "accept", "reason", reason,
			"closed", l.unlogged, "connections", l.open, "remote_address", AddrOf(c.RemoteAddr()).String())
		l.logged, l.unlogged = now, 0
	}
}

// forget takes a connection out of the count, once.
func (l *Listener) forget(c *Conn) {
	if c.forgotten {
		return
	}
	c.forgotten = true
	c.leave()
	l.open--
	if c.source.IsValid() {
		if l.addresses[c.source]--; l.addresses[c.source] == 0 {
			delete(l.addresses, c.source)
		}
	}
}

// Close closes the listener once, and after a grace the connections on which
// nothing has come yet: HTTP clients open connections in advance, and fasthttp's
// shutdown would wait for them.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
		time.AfterFunc(silentGrace, l.closeSilent)
	})
	return l.err
}

func (l *Listener) closeSilent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := l.fresh.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Conn); !c.used.Load() {
			_ = c.Conn.Close()
		}
	}
}

// leave takes a connection out of the list that it is in, if any.
func (c *Conn) leave() {
	if c.in != nil {
		c.in.Remove(c.element)
		c.in = nil
	}
}

// enter adds a connection at the end of a list of idle ones.
func (c *Conn) enter(idle *list.List) { c.in, c.element = idle, idle.PushBack(c) }
