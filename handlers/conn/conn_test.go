package conn

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
		{"header of an untrusted peer", "198.51.100.7", []string{"203.0.113.1"}, "198.51.100.7"},
		{"behind a proxy", "10.0.0.1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"forged first entry", "10.0.0.1", []string{"192.0.2.1, 203.0.113.1"}, "203.0.113.1"},
		{"two proxies", "10.0.0.1", []string{"192.0.2.1, 203.0.113.1, 10.0.0.2"}, "203.0.113.1"},
		{"several lines are one list", "10.0.0.1", []string{"192.0.2.1", "203.0.113.1 ,10.0.0.2"}, "203.0.113.1"},
		{"only trusted addresses", "10.0.0.1", []string{"10.0.0.3"}, "10.0.0.3"},
		{"no header", "10.0.0.1", nil, "10.0.0.1"},
		{"invalid entry", "10.0.0.1", []string{"203.0.113.1, unknown"}, "10.0.0.1"},
		{"invalid entry before a proxy", "10.0.0.1", []string{"evil, 10.0.0.2"}, "10.0.0.2"},
		{"with a port", "10.0.0.1", []string{"203.0.113.1:4711"}, "203.0.113.1"},
		{"IPv6 with a port", "10.0.0.1", []string{"[2001:db9::1]:4711"}, "2001:db9::1"},
		{"IPv6 in brackets, through two proxies", "2001:db8::1", []string{"[2001:db9::1%x], 2001:db8::2"}, "2001:db9::1"},
		{"IPv4 in IPv6", "::ffff:10.0.0.1", []string{"::ffff:203.0.113.1"}, "203.0.113.1"},
	} {
		require.Equal(t, test.want, proxies.Client(netip.MustParseAddr(test.remote), test.forwarded...).String(), test.name)
	}
	require.Equal(t, "10.0.0.1", Proxies(nil).Client(netip.MustParseAddr("10.0.0.1"), "203.0.113.1").String(), "no proxy by default")
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
	require.False(t, Source(AddrOf(&net.UnixAddr{})).IsValid())
}

type endless struct {
	net.Conn
	read   int
	remote net.Addr
	closed chan struct{}
}

func from(format string, n int) *endless {
	ip := net.ParseIP(strings.ReplaceAll(format, "#", strconv.Itoa(n)))
	return &endless{remote: &net.TCPAddr{IP: ip, Port: 1}, closed: make(chan struct{}, 10)}
}

func (e *endless) RemoteAddr() net.Addr            { return e.remote }
func (e *endless) Read(p []byte) (int, error)      { e.read += len(p); return len(p), nil }
func (e *endless) SetReadDeadline(time.Time) error { return nil }
func (e *endless) Close() error                    { e.closed <- struct{}{}; return nil }

func TestCloseDrainsOnce(t *testing.T) {
	t.Parallel()
	e, released := from("203.0.113.1", 0), 0
	c := NewListener(nil, Limits{}).admit(e)
	release := func() { released++ }
	c.OnClose.Store(&release)
	c.DrainOnClose(1000, time.Minute)
	for range 2 {
		require.NoError(t, c.Close())
		require.Equal(t, 1000, e.read)
		require.Equal(t, 1, released)
	}
}

type failing struct {
	net.Listener
	errs []error
}

func (f *failing) Close() error { return nil }
func (f *failing) Accept() (net.Conn, error) {
	err := f.errs[0]
	f.errs = f.errs[1:]
	return nil, &net.OpError{Op: "accept", Err: err}
}

func TestAcceptSurvivesLackOfResources(t *testing.T) {
	t.Parallel()
	causes := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EBADF}
	l, idle := NewListener(&failing{errs: causes}, Limits{}), from("203.0.113.1", 0)
	l.admit(idle)
	_, err := l.Accept()
	require.ErrorIs(t, err, syscall.EBADF, "permanent errors are returned")
	<-idle.closed
}

func TestOldestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	l := NewListener(nil, Limits{Total: 4})
	connect := func() (*endless, *Conn) { e := from("203.0.113.1", 0); return e, l.admit(e) }
	_, busy := connect()
	busy.Begin()
	kept, keptServed := connect()
	keptServed.Begin()
	keptServed.End()
	_, _ = keptServed.Read(make([]byte, 1)) // makes the connection idle
	first, _ := connect()
	second, _ := connect()

	_, third := connect()
	<-first.closed
	_, fourth := connect()
	<-second.closed
	third.Begin()
	fourth.Begin()
	_, fifth := connect()
	<-kept.closed
	fifth.Begin()
	refused, none := connect()
	require.Nil(t, none)
	<-refused.closed // refused, because no connection is idle
	for range 2 {
		require.NoError(t, third.Close())
		require.Equal(t, 3, l.open)
	}
}

func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	l := NewListener(nil, Limits{Total: 1 << 20, Exempt: Proxies{netip.MustParsePrefix("198.51.100.0/24")}})
	for _, format := range []string{"203.0.113.1", "2001:db8::#"} {
		var last *Conn
		for n := range maxPerAddress {
			last = l.admit(from(format, n))
			require.NotNil(t, last)
		}
		require.Nil(t, l.admit(from(format, maxPerAddress)), "the limit per address is reached")
		require.NoError(t, last.Close())
		require.NotNil(t, l.admit(from(format, 0)), "a closed connection frees a slot")
	}
	require.NotNil(t, l.admit(from("203.0.113.2", 0)), "another address")
	require.NotNil(t, l.admit(from("2001:db8:0:1::1", 0)), "another network")
	for range maxPerAddress + 1 {
		require.NotNil(t, l.admit(from("127.0.0.1", 0)))
		require.NotNil(t, l.admit(from("198.51.100.1", 0)), "a trusted proxy")
	}
}

func TestShutdownClosesSilentConnections(t *testing.T) {
	t.Parallel()
	l, silent, used := NewListener(&failing{}, Limits{}), from("203.0.113.1", 0), from("203.0.113.1", 0)
	l.admit(silent)
	_, _ = l.admit(used).Read(make([]byte, 1))
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	<-silent.closed
	require.Empty(t, used.closed)
}
