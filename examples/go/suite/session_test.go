package suite

import (
	"net/http"
	"os"
	"testing"

	"github.com/forgerun/forgerun/client"
)

// labelled sends requests that carry the name of a test, by which forgerun verdict judges the test apart from the others.
type labelled string

func (l labelled) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("ForgeRun-Session", string(l))
	return http.DefaultTransport.RoundTrip(r)
}

// newClient gives a client of the test's own. Tests may run in parallel; those of several packages need names of their own.
func newClient(t *testing.T) *client.Client {
	t.Helper()
	if os.Getenv("FORGERUN_URL") == "" {
		t.Skip("FORGERUN_URL is not set: forgerun verdict -- go test ./examples/go/suite")
	}
	c, err := client.New(client.Config{
		URL: os.Getenv("FORGERUN_URL"), Key: os.Getenv("FORGERUN_API_KEY"), HTTP: &http.Client{Transport: labelled(t.Name())},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
