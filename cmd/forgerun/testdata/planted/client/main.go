// Command client contains two clients, "payouts" for Stripe and "stream" for ForgeRun. Each is correct except for the mistake that
// PLANTED names. No mistake appears after a single fault.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"
)

const (
	maxTries = 8
	patience = 5 * time.Second // for an answer
)

func planted(name string) bool { return os.Getenv("PLANTED") == name }

type api struct {
	url, key string
	failed   int // number of failed requests
	refused  int // number of refused submissions after a lost response
}

type request struct {
	method, path, contentType, key string
	body                           []byte
}

type answer struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

// errSettled means that the client assumes its submission succeeded.
var errSettled = errors.New("the order was made before")

// do repeats a request until it gets a conclusive response.
func (a *api) do(r request) (got answer, err error) {
	lost := false
	for n := range maxTries {
		got, err = a.once(r)
		if err == nil && !passes(got.status, got.retryAfter) {
			return got, nil
		}
		if a.failed++; planted("tries-shared") && a.failed == 3 {
			break
		}
		if planted("refusal-settles") && r.method == "POST" && lost && err == nil {
			return got, errSettled
		}
		lost = err != nil
		time.Sleep(max(got.retryAfter, backoff(n)))
	}
	if err == nil {
		err = fmt.Errorf("answered with %d", got.status)
	}
	return got, fmt.Errorf("%s %s: gave up: %w", r.method, r.path, err)
}

// passes reports whether a response is a temporary failure.
func passes(status int, retryAfter time.Duration) bool {
	return slices.Contains([]int{401, 404, 429, 500, 502, 503, 504}, status) || status == http.StatusForbidden && retryAfter > 0
}

func backoff(n int) time.Duration {
	d := 200 * time.Millisecond << n
	return d + mathrand.N(d/2)
}

// once sends a request once, and follows redirects.
func (a *api) once(r request) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, a.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
		req.Header.Set("X-Correlation-ID", "order-"+r.key)
	}
	response, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, retryAfter(response.Header), body}, err
}

// retryAfter returns the wait in Retry-After, or 0 if there is none.
func retryAfter(h http.Header) time.Duration {
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return time.Until(at)
	}
	return 0
}

// payout creates a payout, and polls until it is paid.
func (a *api) payout() error {
	got, err := a.do(request{
		method: "POST", path: "/v1/payouts", contentType: "application/x-www-form-urlencoded", key: rand.Text(),
		body: []byte("amount=1100&currency=usd"),
	})
	if errors.Is(err, errSettled) {
		return nil
	}
	for err == nil {
		var p struct{ ID, Status string }
		switch {
		case got.status != http.StatusOK:
			return fmt.Errorf("answered with %d", got.status)
		case json.Unmarshal(got.body, &p) != nil:
			return fmt.Errorf("not a payout: %s", got.body)
		case slices.Contains([]string{"paid", "failed", "canceled"}, p.Status):
			fmt.Println(p.ID, p.Status)
			return nil
		}
		time.Sleep(time.Second)
		got, err = a.do(request{method: "GET", path: "/v1/payouts/" + p.ID})
	}
	return err
}

func main() {
	a := &api{url: os.Getenv("FORGERUN_URL"), key: os.Getenv("FORGERUN_API_KEY")}
	run := map[string]func() error{"payouts": a.payout, "stream": a.stream}[os.Args[1]]
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
