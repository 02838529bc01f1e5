package notify

import (
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

// newDB connects to an empty database of the shared server.
func newDB(t testing.TB) *redisconn.Redis {
	t.Helper()
	return connect(t, redistest.URL())
}

// connect makes a patient connection: a machine under load is no fault.
func connect(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	return connectFor(t, url, redistest.Within)
}

// connectHanging is for tests in which Redis hangs.
func connectHanging(t testing.TB, url string) *redisconn.Redis {
	t.Helper()
	return connectFor(t, url, 2*time.Second)
}

func connectFor(t testing.TB, url string, timeout time.Duration) *redisconn.Redis {
	t.Helper()
	r, err := redisconn.Connect(url, redisconn.Options{Registry: prometheus.NewRegistry(), Timeout: timeout, Logger: redistest.Log(t)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return r
}
