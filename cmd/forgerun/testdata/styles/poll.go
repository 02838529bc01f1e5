package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"
)

// longPoll asks the service to delay its responses until the job has changed.
func longPoll(ctx context.Context, a *api) ([]*intention, error) {
	jobs := intentions(6)
	if err := a.submitAll(ctx, jobs); err != nil {
		return nil, err
	}
	for _, in := range jobs {
		for in.Ended == "" {
			asked := time.Now()
			ended, err := a.read(ctx, in, 10*time.Second)
			if err != nil {
				return nil, err
			}
			// The service did not delay the response, so poll.
			if !ended && time.Since(asked) < time.Second {
				if err := pause(ctx, time.Until(in.Next)); err != nil {
					return nil, err
				}
			}
		}
	}
	return jobs, nil
}

// poll repeatedly reads the job with the earliest next read, until all jobs have ended.
func poll(ctx context.Context, a *api) ([]*intention, error) {
	jobs := intentions(6)
	if mistaken("conditional-requests") {
		jobs = intentions(12)
		for _, in := range jobs { // poll for longer: the rule counts polls in a row, and each connection reset starts the count anew
			in.Body["params"].(map[string]any)["behavior"].(map[string]any)["duration"] = "2s"
		}
	}
	if err := a.submitAll(ctx, jobs); err != nil {
		return nil, err
	}
	if mistaken("retry-only-retryable") {
		submitInvalidJobs(ctx, a)
	}
	if mistaken("outcome-learned") {
		return nil, pause(ctx, 6*time.Second)
	}
	for left := open(jobs); len(left) > 0; left = open(jobs) {
		in := slices.MinFunc(left, func(a, b *intention) int { return a.Next.Compare(b.Next) })
		wait := time.Until(in.Next) + jitter(200*time.Millisecond)
		if mistaken("retry-after") {
			wait = 50 * time.Millisecond
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		if _, err := a.read(ctx, in, 0); err != nil {
			return nil, err
		}
	}
	return jobs, afterTheEnd(ctx, a, jobs)
}

type page struct {
	Data []job `json:"data"`
	Page struct {
		NextCursor string `json:"next_cursor"`
	} `json:"page"`
}

// updateFromList updates the jobs from all pages of a list.
func (a *api) updateFromList(ctx context.Context, path string, jobs []*intention) error {
	for cursor := ""; ; {
		query := url.Values{"limit": {"4"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var p page
		if _, err := a.call(ctx, request{method: "GET", path: path + "?" + query.Encode(), expected: true}, &p, http.StatusOK); err != nil {
			return err
		}
		for _, j := range p.Data {
			for _, in := range jobs {
				if in.ID == j.ID {
					in.update(j)
				}
			}
		}
		if cursor = p.Page.NextCursor; cursor == "" {
			return nil
		}
	}
}

// payouts creates a payout at Stripe, and polls it until it has ended.
func payouts(ctx context.Context, a *api) ([]*intention, error) {
	a.quick()
	key := rand.Text()
	r := request{
		method: "POST", path: "/v1/payouts", header: map[string]string{"Idempotency-Key": key, "X-Correlation-ID": "order-" + key},
		body: url.Values{"amount": {"1100"}, "currency": {"usd"}}, expected: true,
	}
	for {
		var p struct{ ID, Status string }
		_, err := a.call(ctx, r, &p, http.StatusOK)
		if errors.Is(err, errAssumed) || slices.Contains([]string{"paid", "failed", "canceled"}, p.Status) {
			return nil, nil
		}
		if err = errors.Join(err, pause(ctx, time.Second)); err != nil {
			return nil, err
		}
		r = request{method: "GET", path: "/v1/payouts/" + p.ID, expected: true}
	}
}

// list reads the list of all jobs until the submitted jobs have ended.
func list(ctx context.Context, a *api) ([]*intention, error) {
	jobs := intentions(6)
	if err := a.submitAll(ctx, jobs); err != nil {
		return nil, err
	}
	for len(open(jobs)) > 0 {
		wait := jitter(time.Second)
		if mistaken("list-polling") {
			wait = 50 * time.Millisecond
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		if err := a.updateFromList(ctx, "/v1/jobs", jobs); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return jobs, a.awaitAll(ctx, jobs)
		}
	}
	return jobs, nil
}
