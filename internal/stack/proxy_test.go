package stack

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func anySeed() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

func TestLostResponse(t *testing.T) {
	t.Parallel()
	var served int
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			served++
		}
	}))
	t.Cleanup(server.Close)
	p, err := newProxy("api", anyAddress, dialer(server.Listener.Addr().String()))
	require.NoError(t, err)
	t.Cleanup(p.close)
	client := &http.Client{Transport: &http.Transport{}, Timeout: testkit.Patience}
	response, err := client.Get("http://" + p.address())
	require.NoError(t, err)
	_ = response.Body.Close()
	testkit.Eventually(t, "the connection is open", func() bool { return len(p.open()) == 1 })

	lost := make(chan int, 1)
	go func() { lost <- lose(testContext(t), p, anySeed()) }()
	testkit.Eventually(t, "the fault waits for a response", p.open()[0].losing.Load)
	_, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.Error(t, err)
	require.Equal(t, 1, <-lost)
	require.Equal(t, 1, served, "the server handled the request")

	response, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.NoError(t, err, "only one response is lost")
	_ = response.Body.Close()
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	require.Zero(t, lose(ended, p, anySeed()))
	response, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.NoError(t, err, "the fault is over")
	_ = response.Body.Close()
}
