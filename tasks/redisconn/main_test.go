package redisconn

import (
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// newDB connects to an empty database of the shared server.
func newDB(t testing.TB) *Redis {
	t.Helper()
	return connect(t, redistest.URL())
}

// connect makes a patient connection: a machine under load is no fault.
func connect(t testing.TB, url string) *Redis {
	t.Helper()
	r, err := Connect(url, Options{Registry: prometheus.NewRegistry(), Timeout: redistest.Within, Logger: redistest.Log(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}
