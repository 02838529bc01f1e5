package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mistaken reports whether MISTAKE names one of these mistakes. The client then makes this common mistake. Without the variable, the client
// is correct.
func mistaken(names ...string) bool { return slices.Contains(names, os.Getenv("MISTAKE")) }

// errAssumed means that the client assumes that its submission succeeded.
var errAssumed = errors.New("the submission is assumed to have succeeded")

func newClient() *http.Client {
	switch {
	case mistaken("connection-reuse"):
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	case mistaken("no-time-out-of-bodies"):
		return &http.Client{Transport: &http.Transport{ResponseHeaderTimeout: answerLimit}}
	case mistaken("redirects"):
		return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &http.Client{CheckRedirect: redirected}
}

// redirected limits redirects. With some mistakes, it changes the redirected request.
func redirected(next *http.Request, before []*http.Request) error {
	asGet := strings.TrimSuffix(os.Getenv("MISTAKE"), "-as-get")
	switch {
	case asGet == strconv.Itoa(next.Response.StatusCode):
		next.Method, next.Body, next.GetBody, next.ContentLength = "GET", nil, nil, 0
	case mistaken("key-to-another-host"):
		next.Header.Set("Authorization", before[0].Header.Get("Authorization"))
	case mistaken("redirects-without-limit"):
		return nil
	}
	if len(before) >= 10 {
		return errors.New("ten redirects in a row")
	}
	return nil
}

// mistakenLimit returns the timeout of a request; limit is the timeout of a correct client.
func mistakenLimit(limit time.Duration) time.Duration {
	if mistaken("time-outs", "no-time-out-of-bodies") {
		return time.Hour
	}
	return limit
}

// repeats reports whether the client repeats a request after a response; right is the decision of a correct client.
func repeats(got response, right bool) bool {
	switch {
	case mistaken("endless-401") && got.status == 401, mistaken("endless-404") && got.status == 404,
		mistaken("endless-410") && got.status == 410, mistaken("renewal-storm") && got.status == 401:
		return true
	case mistaken("401-is-the-end") && got.status == 401, mistaken("404-is-the-end", "404-is-ordered-again") && got.status == 404,
		mistaken("unknown-problem-is-the-end") && bytes.Contains(got.body, []byte("of-a-later-version")):
		return false
	}
	return right
}

// endless reports whether the number of tries is unlimited.
func endless() bool {
	return mistaken("endless-401", "endless-404", "endless-410", "renewal-storm", "date-is-no-wait", "garbage-is-no-wait",
		"missing-is-no-wait", "odd-number-is-no-wait", "server-error-at-once")
}

// mistakenWait returns the wait before the next try; right is the wait of a correct client.
func mistakenWait(got response, try int, right time.Duration) time.Duration {
	text, wait, own := got.header.Get("Retry-After"), got.again(-1), backoff(try-1)
	_, noNumber := strconv.ParseFloat(text, 64)
	_, noDate := http.ParseTime(text)
	switch {
	case mistaken("backoff"),
		mistaken("date-is-no-wait") && noDate == nil,
		mistaken("garbage-is-no-wait") && text != "" && noNumber != nil && noDate != nil,
		mistaken("missing-is-no-wait") && text == "" && got.status != 0,
		mistaken("odd-number-is-no-wait") && noNumber == nil && wait < 0,
		mistaken("403-at-once") && got.status == 403,
		mistaken("server-error-at-once") && (got.status == 500 || got.status == 504):
		return 0
	case mistaken("endless-401", "endless-404", "endless-410", "renewal-storm"):
		return 60 * time.Millisecond
	case mistaken("large-retry-after-ignored") && wait > time.Minute:
		return own
	case mistaken("shorter-wait-wins") && wait >= 0:
		return min(wait, own)
	case mistaken("first-retry-after-kept", "retry-after-capped") && wait >= 0:
		return wait
	}
	return right
}

var firstRetryAfter time.Duration // wait in the first Retry-After

// mistakenRetryAfter returns the wait that the client uses instead of the wait in a Retry-After.
func mistakenRetryAfter(wait time.Duration) time.Duration {
	switch {
	case mistaken("retry-after-capped"):
		return min(wait, 2*time.Second)
	case mistaken("first-retry-after-kept") && firstRetryAfter > 0:
		return firstRetryAfter
	case firstRetryAfter == 0:
		firstRetryAfter = wait
	}
	return wait
}

// change makes mistakes that alter the request or the key before the next try.
func (a *api) change(ctx context.Context, r request, got response) {
	switch {
	case mistaken("idempotency-key", "no-duplicates") && r.method == "POST":
		r.header["Idempotency-Key"] = rand.Text()
	case mistaken("same-body"):
		alterBehavior(r)
	case mistaken("renewal-storm") && got.status == 401:
		var renewed struct {
			Key string `json:"api_key"`
		}
		renew := request{method: "POST", path: "/v1/clients/" + os.Getenv("FORGERUN_CLIENT_ID") + "/keys/renew"}
		if _, err := a.call(ctx, renew, &renewed, http.StatusOK); err == nil {
			a.key = renewed.Key
		}
	}
}

// onceAndAgain tries a request three times. Its caller also retries.
func (a *api) onceAndAgain(ctx context.Context, r request) (got response, err error) {
	for try := range 3 {
		if got, err = a.once(ctx, r); err == nil && !got.passing(r) || pause(ctx, backoff(try)) != nil {
			break
		}
	}
	return got, err
}

// unreadable returns the error of a parser that is too strict, or nil.
func unreadable(body []byte) error {
	known := bytes.Contains(body, []byte(`"correlation_id"`))
	null := bytes.Contains(bytes.ReplaceAll(body, []byte(" "), nil), []byte(`"correlation_id":null`))
	if mistaken("unknown-member-is-an-error") && bytes.Contains(body, []byte(`"x_extension"`)) ||
		mistaken("null-is-an-error") && null || mistaken("missing-member-is-an-error") && !known {
		return errors.New("the job cannot be read")
	}
	return nil
}

// states are the states of jobs.
var states = []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED", "RETRYING", "SCHEDULED", "PAUSED"}

// misreadState makes a mistake with a state, and reports whether it did.
func (in *intention) misreadState(state string) bool {
	switch {
	case mistaken("unknown-state-is-the-end") && !slices.Contains(states, state):
		in.Ended = in.Ends
	case mistaken("unknown-state-is-a-failure") && !slices.Contains(states, state):
		in.Ended = "FAILED"
	default:
		return mistaken("one-state-is-the-end") && state != in.Ends
	}
	return true
}

// alterBehavior changes the body of a submission.
func alterBehavior(r request) {
	if body, ok := r.body.(map[string]any); ok && r.path == "/v1/jobs" {
		body["params"].(map[string]any)["behavior"].(map[string]any)["emit"] = []any{map[string]any{"name": rand.Text()}}
	}
}

// submitInvalidJobs submits an invalid job four times.
func submitInvalidJobs(ctx context.Context, a *api) {
	for range 4 {
		_ = a.submit(ctx, &intention{Key: rand.Text(), Correlation: "order-" + rand.Text(), Body: map[string]any{"type": "NOTHING"}}, 0)
	}
}

// afterTheEnd sends needless requests about ended jobs, or requests that reveal which outcomes the client missed.
func afterTheEnd(ctx context.Context, a *api, jobs []*intention) error {
	if !mistaken("") { // the verdict judges only jobs that have ended; wait for them
		if err := pause(ctx, 6*time.Second); err != nil {
			return err
		}
	}
	var all []request
	for _, in := range jobs {
		switch {
		case mistaken("stop-at-end"):
			read := request{method: "GET", path: "/v1/jobs/" + in.ID}
			all = append(all, read, read, read, read, read)
		case mistaken("401-is-the-end", "404-is-the-end") && in.Ended == "SUCCEEDED":
			all = append(all, request{method: "GET", path: "/v1/jobs/" + in.ID + "/result", raw: true})
		case mistaken("not-retryable") && in.Ended == "FAILED":
			all = append(all, request{method: "POST", path: "/v1/jobs/" + in.ID + "/retry"})
		}
	}
	for _, r := range all {
		if _, err := a.do(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
