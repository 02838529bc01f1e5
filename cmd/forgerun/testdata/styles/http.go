package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	answerLimit = 10 * time.Second // for an answer that the request did not ask to be held back
	maxAnswer   = 4 << 20
	maxTries    = 10
)

// api is the service with a key for it.
type api struct {
	url, key string
	http     *http.Client
	longest  time.Duration // that it waits for the next try; 0: as long as it is told
}

type request struct {
	method, path string
	header       map[string]string
	body         any           // JSON
	wait         time.Duration // for how long the answer may be held back
	raw          bool          // the answer need not be JSON
	expected     bool          // 404 means that the service does not show it yet
}

type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends a request until it has an answer that is not about a moment's trouble. What was lost, or came in part, is sent again.
func (a *api) do(ctx context.Context, r request) (answer, error) {
	refused := 0 // how often the key was
	for try := 1; ; try++ {
		send := a.once
		if mistaken("retries-inside-retries") {
			send = a.onceAndAgain
		}
		got, err := send(ctx, r)
		if err == nil && got.status == http.StatusUnauthorized {
			refused++
		}
		again := got.passing(r) || got.status == http.StatusUnauthorized && refused == 1
		if err == nil && !insists(got, again) {
			return got, nil
		}
		if err == nil {
			err = fmt.Errorf("%d", got.status)
		}
		wait := hurried(got, try, max(got.again(0), backoff(try-1)))
		if try >= maxTries && !endless() || ctx.Err() != nil || a.longest > 0 && wait > a.longest ||
			mistaken("lost-answer") && r.method == "POST" {
			return answer{}, fmt.Errorf("%s %s: gave up after %d tries: %w", r.method, r.path, try, err)
		}
		a.change(ctx, r, got)
		if err := pause(ctx, wait); err != nil {
			return answer{}, err
		}
	}
}

// once sends a request once; redirects are followed.
func (a *api) once(ctx context.Context, r request) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, mistakenLimit(answerLimit+r.wait))
	defer cancel()
	req, err := a.request(ctx, r)
	if err != nil {
		return answer{}, err
	}
	response, err := a.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return answer{}, err
	}
	got := answer{response.StatusCode, response.Header, body}
	if got.status/100 == 2 && got.status != http.StatusNoContent && !r.raw && !json.Valid(body) {
		return answer{}, fmt.Errorf("an answer that is not JSON: %.100s", body)
	}
	return got, nil
}

func (a *api) request(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	target := a.url + r.path
	if mistaken("no-key-in-url") {
		target += "?api_key=" + a.key
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.key)
	req.Header.Set("Accept", "application/json")
	if mistaken("content-negotiation") {
		req.Header.Set("Accept", "text/csv")
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.wait > 0 {
		req.Header.Set("Prefer", fmt.Sprintf("wait=%d", int(r.wait.Seconds())))
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if mistaken("correlation-ids") {
		req.Header.Del("X-Correlation-ID")
	}
	if mistaken("no-idempotency-key") {
		req.Header.Del("Idempotency-Key")
	}
	return req, nil
}

// call is do, for an answer of one of the given statuses, which is read into the value if it has a body.
func (a *api) call(ctx context.Context, r request, into any, statuses ...int) (answer, error) {
	got, err := a.do(ctx, r)
	if err != nil {
		return answer{}, err
	}
	for _, status := range statuses {
		if got.status != status {
			continue
		}
		if into == nil || len(got.body) == 0 {
			return got, nil
		}
		return got, json.Unmarshal(got.body, into)
	}
	return got, fmt.Errorf("%s %s: %d %s", r.method, r.path, got.status, got.body)
}

// passing reports whether an answer is about trouble that passes.
func (got answer) passing(r request) bool {
	switch got.status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable,
		http.StatusGatewayTimeout:
		return true
	case http.StatusForbidden:
		return got.header.Get("Retry-After") != ""
	case http.StatusNotFound:
		return r.expected
	}
	return false
}

// again is how long to wait before the next request: as the longest Retry-After says, or otherwise as given.
func (got answer) again(otherwise time.Duration) time.Duration {
	told := time.Duration(-1)
	for _, text := range got.header.Values("Retry-After") {
		text = strings.TrimSpace(text)
		if seconds, err := strconv.Atoi(text); err == nil {
			told = max(told, time.Duration(seconds)*time.Second)
		} else if at, err := http.ParseTime(text); err == nil {
			told = max(told, time.Until(at), 0)
		}
	}
	if told < 0 {
		return otherwise
	}
	return misread(told)
}

// backoff doubles from a quarter of a second to two seconds, each with up to half of it more.
func backoff(try int) time.Duration {
	return jitter(250 * time.Millisecond << min(try, 3))
}

// jitter is a duration, or up to half of it more.
func jitter(d time.Duration) time.Duration {
	return d + mathrand.N(d/2+1)
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
