package holders_test

import (
	"net"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/holders"
)

func TestOfPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	found, ok := holders.OfPort(l.Addr().String())
	require.True(t, ok)
	require.Equal(t, os.Getpid(), found.PID)
	require.Contains(t, found.String(), "holders.test")
	require.NoError(t, l.Close())
	_, ok = holders.OfPort(l.Addr().String())
	require.False(t, ok)
	_, ok = holders.OfPort("nowhere")
	require.False(t, ok)
}
