package conn

import (
	"cmp"
	"container/list"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/internal/telemetry"
)

const (
	silentGrace   = 250 * time.Millisecond // time for a new connection to send a request after a shutdown has begun
	firstPause    = 5 * time.Millisecond   // pause after a failure to accept; doubled after each further failure, up to lastPause
	lastPause     = time.Second
	logEvery      = 10 * time.Second // minimum time between log lines about closed connections
	maxPerAddress = 1000
)

// Limits are the limits of a listener. The zero value has no limits.
type Limits struct {
	Total   int     // simultaneous connections
	Exempt  Proxies // proxies without a limit per address; loopback addresses also have none
	Metrics *Metrics
	Log     *slog.Logger
}

// Metrics count closed connections and accept failures of all listeners of a process.
type Metrics struct {
	closed   *prometheus.CounterVec
	failures prometheus.Counter
}

// NewMetrics registers the metrics.
func NewMetrics(f telemetry.Factory) *Metrics {
	return &Metrics{
		closed: f.Counters("connections_refused_total",
			"Connections closed because there were too many, by reason: idle (an idle one, to make room), full (a new one, because "+
				"none was idle), address (a new one, from an address that has reached its limit).", []string{"reason"}, "idle", "full", "address"),
		failures: f.Counter("accept_failures_total",
			"Failures to accept a connection because file descriptors or memory ran out; the server pauses after each."),
	}
}

// Listener limits the number of connections. Above the limit, it closes the oldest idle connection, preferably one without any request
// yet. If file descriptors or memory run out, it closes idle connections and continues to accept.
type Listener struct {
	net.Listener
	limits Limits
	once   sync.Once
	err    error
	closed chan struct{}

	mu        sync.Mutex
	open      int
	addresses map[netip.Addr]int
	fresh     list.List // idle Conns without any request yet
	kept      list.List // idle Conns between two requests
	logged    time.Time
	unlogged  int
	refuses   time.Time // until this time, idle connections are closed; see Refuse
}

// NewListener wraps a listener.
func NewListener(l net.Listener, limits Limits) *Listener {
	limits.Metrics = cmp.Or(limits.Metrics, NewMetrics(telemetry.In(nil)))
	limits.Log = cmp.Or(limits.Log, slog.New(slog.DiscardHandler))
	return &Listener{Listener: l, limits: limits, closed: make(chan struct{}), addresses: map[netip.Addr]int{}}
}

var passing = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED}

// Accept returns the next connection that the limits allow. If file descriptors or memory run out, it tries again after a pause.
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
		case slices.ContainsFunc(passing, func(cause error) bool { return errors.Is(err, cause) }):
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

// starved closes idle connections when accept fails for lack of file descriptors or memory.
func (l *Listener) starved(err error, pause time.Duration) {
	l.limits.Metrics.failures.Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	for range 1 + l.open/16 {
		if idle := l.oldest(); idle != nil {
			l.refuse(idle, "idle")
		}
	}
	if pause == firstPause {
		l.limits.Log.Warn("cannot accept connections: file descriptors or memory ran out; trying again",
			"action", "accept", "connections", l.open, "error_message", err.Error())
	}
}

// If a limit forbids the connection, admit closes it and returns nil.
func (l *Listener) admit(accepted net.Conn) *Conn {
	c := &Conn{Conn: accepted, listener: l}
	if addr := AddrOf(accepted.RemoteAddr()); !addr.IsLoopback() && !l.limits.Exempt.Trusts(addr) {
		c.source = Source(addr)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
	l.addresses[c.source]++
	if l.limits.Total > 0 && c.source.IsValid() && l.addresses[c.source] > maxPerAddress {
		l.refuse(c, "address")
		return nil
	}
	if l.limits.Total > 0 && l.open > l.limits.Total {
		idle := l.oldest()
		if idle == nil {
			l.refuse(c, "full")
			return nil
		}
		l.refuse(idle, "idle")
	}
	c.enter(&l.fresh)
	return c
}

// Refuse closes the listening socket for the duration `d`. During this time it also closes all connections that are idle or become idle.
// It does nothing if the socket cannot be reopened later.
func (l *Listener) Refuse(d time.Duration) {
	socket, ok := l.Listener.(interface{ Refuse(d time.Duration) })
	if !ok {
		return
	}
	socket.Refuse(d)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = time.Now().Add(d)
	for idle := l.oldest(); idle != nil; idle = l.oldest() {
		l.end(idle)
	}
}

func (l *Listener) oldest() *Conn {
	if first := cmp.Or(l.fresh.Front(), l.kept.Front()); first != nil {
		return first.Value.(*Conn)
	}
	return nil
}

func (l *Listener) end(c *Conn) {
	l.forget(c)
	_ = c.Conn.Close()
}

func (l *Listener) refuse(c *Conn, reason string) {
	l.end(c)
	l.limits.Metrics.closed.WithLabelValues(reason).Inc()
	l.unlogged++
	if now := time.Now(); now.Sub(l.logged) >= logEvery {
		l.limits.Log.Warn("closing connections because there are too many", "action", "accept", "reason", reason,
			"closed", l.unlogged, "connections", l.open, "remote_address", AddrOf(c.RemoteAddr()).String())
		l.logged, l.unlogged = now, 0
	}
}

func (l *Listener) forget(c *Conn) {
	if c.forgotten {
		return
	}
	c.forgotten = true
	c.enter(nil)
	l.open--
	if l.addresses[c.source]--; l.addresses[c.source] == 0 {
		delete(l.addresses, c.source)
	}
}

// Close closes the listener. After silentGrace, it also closes connections that have sent nothing. Without this, fasthttp would wait five
// seconds for them. Repeated calls do nothing and return the same error.
func (l *Listener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.err = l.Listener.Close()
		time.AfterFunc(silentGrace, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			for e := l.fresh.Front(); e != nil; e = e.Next() {
				if c := e.Value.(*Conn); !c.used.Load() {
					_ = c.Conn.Close()
				}
			}
		})
	})
	return l.err
}
