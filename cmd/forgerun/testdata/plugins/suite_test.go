//go:build plugins

// Package plugins is a test suite with correct and incorrect clients, for the tests of the Go plugin.
package plugins

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/forgerun/forgerun/forgeruntest"
)

func send(t *testing.T, method, address, key, body string) (location string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.Header.Get("Location")
}

func start(t *testing.T) string {
	t.Helper()
	t.Parallel()
	return forgeruntest.Start(t, forgeruntest.Options{}).URL
}

func TestRight(t *testing.T) {
	for n := range 3 {
		t.Run("right"+strconv.Itoa(n+1), func(t *testing.T) {
			url := start(t)
			send(t, http.MethodGet, url+send(t, http.MethodPost, url+"/orders", rand.Text(), "tea"), "", "")
		})
	}
}

func TestOneKeyForTwoOrders(t *testing.T) {
	url := start(t)
	send(t, http.MethodPost, url+"/orders", "17", "tea")
	send(t, http.MethodPost, url+"/orders", "17", "coffee")
}

func TestNoPauseAfter429(t *testing.T) {
	url := start(t)
	order := send(t, http.MethodPost, url+"/orders", rand.Text(), "tea")
	for range 3 {
		send(t, http.MethodGet, url+order+"?busy=1", "", "")
	}
}
