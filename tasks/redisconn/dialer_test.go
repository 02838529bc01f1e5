package redisconn_test

import (
	"context"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// go-redis looks at the socket to know whether Redis has closed it.
func TestDialUntilShowsTheSocket(t *testing.T) {
	t.Parallel()
	ctx, cut := context.WithCancel(t.Context())
	dial, address := redistest.DB(t).DialUntil(ctx), fmt.Sprint("127.0.0.1:", redistest.Shared(t).Port())
	conn := redistest.Must(dial(t.Context(), "tcp", address))(t)
	require.Implements(t, (*syscall.Conn)(nil), conn)
	require.NoError(t, conn.Close())
	require.False(t, redisconn.Forget(conn), "a closed connection is forgotten")

	conn = redistest.Must(dial(t.Context(), "tcp", address))(t)
	cut()
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	_, err = dial(t.Context(), "tcp", address)
	require.ErrorIs(t, err, context.Canceled)
	require.Error(t, conn.Close())
}
