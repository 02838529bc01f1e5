package wire

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Who waits for a connection while the socket is closed hears of the end.
func TestListenerEndsWhileItRefuses(t *testing.T) {
	t.Parallel()
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	accepted := make(chan error)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	l.Refuse(time.Hour)
	l.Refuse(0)
	_, err = net.Dial("tcp", l.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, l.Close())
	require.ErrorIs(t, <-accepted, net.ErrClosed)
	l.open() // as it would have an hour later
	_, err = net.Dial("tcp", l.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
}
