// Package suite tests correct and incorrect clients. All assertions pass. forgeruntest fails the tests of incorrect clients anyway.
//
//	FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_PROFILE=none go test -count 1 -parallel 4 ./examples/go/suite
//	forgerun verdict --profile none -- go test -count 1 ./examples/go/suite    (all tests pass, and the verdict names the mistakes)
package suite

import (
	"crypto/rand"
	"net/http"
	"strconv"
	"testing"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/forgeruntest"
)

func each(t *testing.T, test func(t *testing.T, s *forgeruntest.Service, c *client.Client)) {
	t.Helper()
	t.Parallel()
	for n := range 3 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			s := forgeruntest.Start(t, forgeruntest.Options{})
			test(t, s, newClient(t, s))
		})
	}
}

func submit(t *testing.T, c *client.Client, key, kind string) (*client.Accepted, error) {
	t.Helper()
	return c.Submit(t.Context(), client.JobRequest{Type: client.Execute, WorkKind: kind}, client.IdempotencyKey(key),
		client.CorrelationID(rand.Text()))
}

func TestRight(t *testing.T) {
	each(t, func(t *testing.T, _ *forgeruntest.Service, c *client.Client) {
		accepted, err := submit(t, c, rand.Text(), client.KindSuccessFast)
		if err != nil {
			t.Fatal(err)
		}
		if j, err := c.Wait(t.Context(), accepted.JobID); err != nil || j.State != client.Succeeded {
			t.Fatal(j, err)
		}
	})
}

func TestOneKeyForTwoOrders(t *testing.T) { // the client breaks the rule same-body
	each(t, func(t *testing.T, _ *forgeruntest.Service, c *client.Client) {
		key := rand.Text()
		if _, err := submit(t, c, key, client.KindSuccessFast); err != nil {
			t.Fatal(err)
		}
		if _, err := submit(t, c, key, client.KindFailImmediate); err == nil {
			t.Fatal("the key is for another order")
		}
	})
}

func TestKeyInTheURL(t *testing.T) { // the client breaks the rule no-key-in-url
	each(t, func(t *testing.T, s *forgeruntest.Service, _ *client.Client) {
		address := s.URL + "/v1/jobs?api_key=" + s.Key
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Transport(nil).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
	})
}
