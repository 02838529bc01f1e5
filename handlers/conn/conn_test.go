package conn

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func TestClientAddress(t *testing.T) {
	t.Parallel()
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for _, test := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"no proxy", "198.51.100.7", nil, "198.51.100.7"},
		{"an untrusted header says nothing", "198.51.100.7", []string{"203.0.113.1"}, "198.51.100.7"},
		{"behind a proxy", "10.0.0.1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"what the client wrote itself", "10.0.0.1", []string{"192.0.2.1, 203.0.113.1"}, "203.0.113.1"},
		{"two proxies", "10.0.0.1", []string{"192.0.2.1, 203.0.113.1, 10.0.0.2"}, "203.0.113.1"},
		{"several lines are one list", "10.0.0.1", []string{"192.0.2.1", "203.0.113.1 ,10.0.0.2"}, "203.0.113.1"},
		{"a list that claims trusted addresses ends there", "10.0.0.1", []string{"10.0.0.3"}, "10.0.0.3"},
		{"no header", "10.0.0.1", nil, "10.0.0.1"},
		{"no address", "10.0.0.1", []string{"203.0.113.1, unknown"}, "10.0.0.1"},
		{"no address before a proxy", "10.0.0.1", []string{"evil, 10.0.0.2"}, "10.0.0.2"},
		{"with a port", "10.0.0.1", []string{"203.0.113.1:4711"}, "203.0.113.1"},
		{"IPv6 with a port", "10.0.0.1", []string{"[2001:db9::1]:4711"}, "2001:db9::1"},
		{"IPv6 in brackets, through two proxies", "2001:db8::1", []string{"[2001:db9::1%x], 2001:db8::2"}, "2001:db9::1"},
		{"IPv4 in IPv6", "::ffff:10.0.0.1", []string{"::ffff:203.0.113.1"}, "203.0.113.1"},
	} {
		require.Equal(t, test.want, proxies.Client(netip.MustParseAddr(test.remote), test.forwarded...).String(), test.name)
	}
	require.Equal(t, "10.0.0.1", Proxies(nil).Client(netip.MustParseAddr("10.0.0.1"), "203.0.113.1").String(), "nobody is trusted unasked")
}

func TestSource(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"203.0.113.1": "203.0.113.1", "::ffff:203.0.113.1": "203.0.113.1",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		require.Equal(t, want, Source(netip.MustParseAddr(addr)).String())
	}
	require.Equal(t, "127.0.0.1", AddrOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}).String())
	require.False(t, AddrOf(&net.UnixAddr{}).IsValid())
	require.NotPanics(t, func() { Source(netip.Addr{}) })
}

// endless is a connection whose client never stops sending.
type endless struct {
	net.Conn
	read     int
	deadline time.Time
	closed   bool
	remote   net.Addr
}

func (e *endless) RemoteAddr() net.Addr { return e.remote }

func (e *endless) Read(p []byte) (int, error)        { e.read += len(p); return len(p), nil }
func (e *endless) SetReadDeadline(t time.Time) error { e.deadline = t; return nil }
func (e *endless) Close() error                      { e.closed = true; return nil }

func TestDrainBounds(t *testing.T) {
	t.Parallel()
	e := &endless{}
	c := &Conn{Conn: e, listener: NewListener(nil, Limits{})}
	require.NoError(t, c.Close())
	require.Zero(t, e.read, "a request that was read leaves nothing to drain")
	before := time.Now()
	c.DrainOnClose(1000, time.Minute)
	require.NoError(t, c.Close())
	require.Equal(t, 1000, e.read)
	require.False(t, e.deadline.Before(before.Add(time.Minute)) || e.deadline.After(time.Now().Add(time.Minute)))
	require.True(t, e.closed)
	require.NoError(t, c.Close())
	require.Equal(t, 1000, e.read, "once")

	released := 0
	release := func() { released++ }
	c.OnClose.Store(&release) // of a stream that never began
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	require.Equal(t, 1, released)
}

// failingListener fails to accept with each of its errors first.
type failingListener struct {
	net.Listener
	errs []error
}

func (b *failingListener) Accept() (net.Conn, error) {
	if len(b.errs) > 0 {
		err := b.errs[0]
		b.errs = b.errs[1:]
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return b.Listener.Accept()
}

// bench is a listener and its clients.
type bench struct {
	t *testing.T
	*Listener
}

func newBench(t *testing.T, limits Limits, errs ...error) *bench {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &bench{t, NewListener(&failingListener{l, errs}, limits)}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// connect opens a connection and gives both ends.
func (b *bench) connect() (client net.Conn, served *Conn) {
	b.t.Helper()
	client = b.dial()
	c, err := b.Accept()
	require.NoError(b.t, err)
	return client, c.(*Conn)
}

func (b *bench) dial() net.Conn {
	b.t.Helper()
	client, err := net.Dial("tcp", b.Addr().String())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = client.Close() })
	require.NoError(b.t, client.SetDeadline(time.Now().Add(testkit.Patience)))
	return client
}

func (b *bench) requireClosed(client net.Conn) {
	b.t.Helper()
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(b.t, err, io.EOF)
}

func TestAcceptSurvivesALackOfResources(t *testing.T) {
	t.Parallel()
	measured := 0
	b := newBench(t, Limits{Total: func() int { measured++; return 10 }},
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED)
	b.connect()
	require.Equal(t, 6, measured, "the limit may have changed")
	b = newBench(t, Limits{}, syscall.EBADF)
	_, err := b.Accept()
	require.ErrorIs(t, err, syscall.EBADF, "what does not pass is returned")
}

func TestTheOldestIdleConnectionMakesRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{Total: func() int { return 4 }})
	_, busy := b.connect()
	busy.Begin()
	kept, keptServed := b.connect()
	keptServed.Begin()
	keptServed.End()
	waits := make(chan struct{})
	go func() { defer close(waits); _, _ = keptServed.Read(make([]byte, 1)) }()
	testkit.Eventually(t, "it waits for its next request", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return keptServed.in == &b.kept
	})
	first, _ := b.connect()
	second, _ := b.connect()

	_, third := b.connect()
	b.requireClosed(first)
	_, fourth := b.connect()
	b.requireClosed(second)
	third.Begin()
	fourth.Begin()
	_, fifth := b.connect()
	b.requireClosed(kept)
	<-waits
	fifth.Begin()
	refused := b.dial()
	go func() { _, _ = b.Accept() }()
	b.requireClosed(refused) // nobody is idle
	require.NoError(t, third.Close())
	require.Error(t, third.Close(), "closed, and counted once")
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Equal(t, 3, b.open)
}

func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{PerAddress: 2, Exempt: Proxies{netip.MustParsePrefix("198.51.100.0/24")}})
	from := func(addr string) *Conn {
		return b.admit(&endless{remote: &net.TCPAddr{IP: net.ParseIP(addr), Port: 1}})
	}
	first := from("203.0.113.1")
	require.NotNil(t, first)
	require.NotNil(t, from("203.0.113.1"))
	require.Nil(t, from("203.0.113.1"))
	require.NotNil(t, from("203.0.113.2"), "another one")
	require.NoError(t, first.Close())
	require.NotNil(t, from("203.0.113.1"), "room again")
	require.NotNil(t, from("2001:db8::1"))
	require.NotNil(t, from("2001:db8::2"))
	require.Nil(t, from("2001:db8::3"), "one network")
	for range 5 {
		require.NotNil(t, from("127.0.0.1"))
		require.NotNil(t, from("198.51.100.1"), "a trusted proxy")
	}
}

func TestShutdownClosesWhatIsSilent(t *testing.T) {
	t.Parallel()
	b := newBench(t, Limits{})
	silent, _ := b.connect()
	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	b.requireClosed(silent)
}
