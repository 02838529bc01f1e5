package conn

import (
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 20 * time.Second

// broken fails to accept with each of its errors first.
type broken struct {
	net.Listener
	errs []error
}

func (b *broken) Accept() (net.Conn, error) {
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
	b := &bench{t, NewListener(&broken{l, errs}, limits)}
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
	require.NoError(b.t, client.SetDeadline(time.Now().Add(patience)))
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
	require.ErrorIs(t, err, syscall.EBADF, "what does not pass is told")
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
	require.Eventually(t, func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return keptServed.in == &b.kept
	}, patience, time.Millisecond)
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
