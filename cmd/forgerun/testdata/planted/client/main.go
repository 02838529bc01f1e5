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
	patience = 5 * time.Second // timeout of a request
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

type response struct {
	status     int
	retryAfter time.Duration
	body       []byte
}

// errAssumed means that the client assumes that its submission succeeded.
var errAssumed = errors.New("the submission is assumed to have succeeded")

// do repeats a request until it gets a conclusive response.
func (a *api) do(r request) (got response, err error) {
	lost := false
	for n := range maxTries {
		got, err = a.once(r)
		if err == nil && !passes(got.status, got.retryAfter) {
			return got, nil
		}
		if a.failed++; planted("tries-shared") && a.failed == 3 {
			break
		}
		if planted("refusal-is-success") && r.method == "POST" && lost && err == nil {
			return got, errAssumed
		}
		lost = err != nil
		time.Sleep(max(got.retryAfter, backoff(n)))
	}
	if err == nil {
		err = fmt.Errorf("the response is %d", got.status)
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
func (a *api) once(r request) (response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, a.url+r.path, bytes.NewReader(r.body))
	if err != nil {
		return response{}, err
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	if r.contentType != "" {
		req.Header.Set("Content-Type", r.contentType)
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
		req.Header.Set("X-Correlation-ID", "order-"+r.key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	return response{res.StatusCode, retryAfter(res.Header), body}, err
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

// payout creates a payout, and polls it until it has ended.
func (a *api) payout() error {
	got, err := a.do(request{
		method: "POST", path: "/v1/payouts", contentType: "application/x-www-form-urlencoded", key: rand.Text(),
		body: []byte("amount=1100&currency=usd"),
	})
	if errors.Is(err, errAssumed) {
		return nil
	}
	for err == nil {
		var p struct{ ID, Status string }
		switch {
		case got.status != http.StatusOK:
			return fmt.Errorf("the response is %d", got.status)
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
