package commands

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// The first line has the address of the proxy, its target, and where its sessions are; the second one where they always are.
func TestProxyPrintsItsAddresses(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	code, stdout, stderr := simulateIn(stopped, "proxy", "--target", "http://localhost:3000", "--listen", "127.0.0.1:0")
	require.Equal(t, exitOK, code, stderr)
	const proxy = `http://127\.0\.0\.1:\d+`
	require.Regexp(t, "^"+proxy+" is in front of http://localhost:3000; sessions: "+proxy+"/-/forgerun/v1/testbed/sessions\n"+
		"While a fault refuses connections, use sessions at "+proxy+"/-/forgerun/v1/testbed/sessions\n$", stdout)
}
