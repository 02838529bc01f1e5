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

func TestLostAnswer(t *testing.T) {
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
	answer, err := client.Get("http://" + p.address())
	require.NoError(t, err)
	_ = answer.Body.Close()
	testkit.Eventually(t, "the link is there", func() bool { return len(p.open()) == 1 })

	lost := make(chan int, 1)
	go func() { lost <- lose(testContext(t), p, anySeed()) }()
	testkit.Eventually(t, "an answer is waited for", p.open()[0].losing.Load)
	_, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.Error(t, err)
	require.Equal(t, 1, <-lost)
	require.Equal(t, 1, served, "the server has done it")

	answer, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.NoError(t, err, "only one answer is lost")
	_ = answer.Body.Close()
	ended, cancel := context.WithCancel(testContext(t))
	cancel()
	require.Zero(t, lose(ended, p, anySeed()))
	answer, err = client.Post("http://"+p.address(), "text/plain", nil)
	require.NoError(t, err, "the fault is over")
	_ = answer.Body.Close()
}
