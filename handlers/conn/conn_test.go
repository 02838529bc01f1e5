package conn

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	c.DrainOnClose(1000, time.Minute)
	require.NoError(t, c.Close())
	require.Equal(t, 1000, e.read)
	require.WithinDuration(t, time.Now().Add(time.Minute), e.deadline, 20*time.Second)
	require.True(t, e.closed)
	require.NoError(t, c.Close())
	require.Equal(t, 1000, e.read, "once")
}
