package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	maxAnswer = 4 << 20
	maxTries  = 10
)

// Timeouts of the client.
var (
	answerLimit = 10 * time.Second // without Prefer: wait
	silence     = 17 * time.Second // of a stream; the service sends a comment every 15 seconds
)

// api is a connection to the service with an API key.
type api struct {
	url, key string
	http     *http.Client
	longest  time.Duration // longest wait before the next try; 0: no limit
	patient  bool          // repeats a request after any number of 401 responses
	failed   atomic.Int32  // number of failed requests
}

// quick makes the client suitable for a search, which runs it hundreds of times.
func (a *api) quick() { answerLimit, silence, a.patient = 5*time.Second, 5*time.Second, true }

type request struct {
	method, path string
	header       map[string]string
	body         any           // JSON, or a form as url.Values
	wait         time.Duration // how long the service may delay the response
	raw          bool          // whether the response may be other than JSON
	expected     bool          // whether a 404 means that the resource is not visible yet
}

type response struct {
	status int
	header http.Header
	body   []byte
}

// do repeats a request after temporary failures, and after lost or incomplete responses.
func (a *api) do(ctx context.Context, r request) (response, error) {
	refused, lost := 0, false // number of 401 responses; whether the previous response was lost
	for try := 1; ; try++ {
		send := a.once
		if mistaken("retries-inside-retries") {
			send = a.onceAndAgain
		}
		got, err := send(ctx, r)
		if err == nil && got.status == http.StatusUnauthorized {
			refused++
		}
		again := got.passing(r) || got.status == http.StatusUnauthorized && (refused == 1 || a.patient)
		if err == nil && !repeats(got, again) {
			return got, nil
		}
		if err == nil && lost && r.method == "POST" && mistaken("refusal-is-success") {
			return got, errAssumed
		}
		if lost = err != nil; !lost {
			err = fmt.Errorf("%d", got.status)
		}
		wait := mistakenWait(got, try, max(got.again(0), backoff(try-1)))
		if try >= maxTries && !endless() || ctx.Err() != nil || a.longest > 0 && wait > a.longest ||
			mistaken("lost-answer") && r.method == "POST" || a.failed.Add(1) == 3 && mistaken("tries-shared") {
			return response{}, fmt.Errorf("%s %s: gave up after %d tries: %w", r.method, r.path, try, err)
		}
		a.change(ctx, r, got)
		if err := pause(ctx, wait); err != nil {
			return response{}, err
		}
	}
}

// once sends a request once, and follows redirects.
func (a *api) once(ctx context.Context, r request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, mistakenLimit(answerLimit+r.wait))
	defer cancel()
	req, err := a.request(ctx, r)
	if err != nil {
		return response{}, err
	}
	res, err := a.http.Do(req)
	if err != nil {
		return response{}, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return response{}, err
	}
	got := response{res.StatusCode, res.Header, body}
	if got.status/100 == 2 && got.status != http.StatusNoContent && !r.raw && !json.Valid(body) {
		return response{}, fmt.Errorf("a response that is not JSON: %.100s", body)
	}
	return got, nil
}

func (a *api) request(ctx context.Context, r request) (*http.Request, error) {
	var body io.Reader
	contentType := "application/json"
	if form, ok := r.body.(url.Values); ok {
		body, contentType = strings.NewReader(form.Encode()), "application/x-www-form-urlencoded"
	} else if r.body != nil {
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
		req.Header.Set("Content-Type", contentType)
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

// call sends a request, requires one of the statuses, and decodes the body into the value.
func (a *api) call(ctx context.Context, r request, into any, statuses ...int) (response, error) {
	got, err := a.do(ctx, r)
	if err != nil {
		return response{}, err
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

// passing reports whether a response is a temporary failure.
func (got response) passing(r request) bool {
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

// again returns the longest wait in the Retry-After headers; without one, it returns otherwise.
func (got response) again(otherwise time.Duration) time.Duration {
	wait := time.Duration(-1)
	for _, text := range got.header.Values("Retry-After") {
		text = strings.TrimSpace(text)
		if seconds, err := strconv.Atoi(text); err == nil {
			wait = max(wait, time.Duration(seconds)*time.Second)
		} else if at, err := http.ParseTime(text); err == nil {
			wait = max(wait, time.Until(at), 0)
		}
	}
	if wait < 0 {
		return otherwise
	}
	return mistakenRetryAfter(wait)
}

// backoff returns a wait that doubles with each try from 250 ms to 2 s, plus a random part of up to half of it.
func backoff(try int) time.Duration {
	return jitter(250 * time.Millisecond << min(try, 3))
}

// jitter returns d plus a random duration of up to half of d.
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
