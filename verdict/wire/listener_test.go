package wire

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestListenerIsReopened(t *testing.T) {
	t.Parallel()
	l, err := Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	l.Reopen()
	for range 3 {
		l.Refuse(time.Hour)
		_, err = net.Dial("tcp", l.Addr().String())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		l.Reopen()
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}

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
	l.open(nil) // Refuse's timer calls open, even after Close
	_, err = net.Dial("tcp", l.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.ErrorIs(t, l.Close(), net.ErrClosed)
}
