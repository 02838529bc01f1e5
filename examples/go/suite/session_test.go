package suite

import (
	"net/http"
	"testing"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/forgeruntest"
)

func newClient(t *testing.T, s *forgeruntest.Service) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: s.URL, Key: s.Key, HTTP: &http.Client{Transport: s.Transport(nil)}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
