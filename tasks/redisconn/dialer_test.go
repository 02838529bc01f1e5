package redisconn

import (
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/forgerun/forgerun/tasks/redistest"
	"github.com/stretchr/testify/require"
)

// go-redis looks at the socket to tell whether Redis has closed it.
func TestCutterShowsTheSocket(t *testing.T) {
	t.Parallel()
	cutter := newDB(t).NewCutter()
	conn, err := cutter.Dial(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", redistest.Shared.Port()))
	require.NoError(t, err)
	require.Implements(t, (*syscall.Conn)(nil), conn)
	require.Len(t, cutter.conns, 1)
	require.NoError(t, conn.Close())
	require.Empty(t, cutter.conns)

	conn, err = cutter.Dial(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", redistest.Shared.Port()))
	require.NoError(t, err)
	cutter.Cut()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = cutter.Dial(t.Context(), "tcp", fmt.Sprint("127.0.0.1:", redistest.Shared.Port()))
	require.ErrorIs(t, err, errCutOff)
	require.Error(t, conn.Close())
}
