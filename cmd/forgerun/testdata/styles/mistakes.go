package main

import (
	"context"
	"crypto/rand"
	"net/http"
	"os"
)

// mistaken reports whether the client is to break a rule of the verdict, named by STYLES_MISTAKE: where a style would do what the rule
// asks for, it does something else that people do. Without the variable all is right.
func mistaken(rule string) bool { return os.Getenv("STYLES_MISTAKE") == rule }

// disturbances are faults that no profile has, for rules that need them.
var disturbances = map[string]map[string]any{
	"tolerant-reader": disturbance("getJob", 2, map[string]any{"job_status": "PONDERING"}),
	"time-outs":       disturbance("getJob", 1, map[string]any{"delay": "35s"}),
	"redirects":       disturbance("submitJob", 1, map[string]any{"moved": true}),
}

func disturbance(operation string, nth int, effect map[string]any) map[string]any {
	return map[string]any{"match": map[string]any{"operation": operation, "nth": nth}, "effect": effect}
}

func (a *api) disturb(ctx context.Context) error {
	rule := disturbances[os.Getenv("STYLES_MISTAKE")]
	if rule == nil {
		return nil
	}
	_, err := a.call(ctx, request{method: "PUT", path: "/v1/testbed/faults", body: []any{rule}}, nil, http.StatusOK)
	return err
}

func newClient() *http.Client {
	switch {
	case mistaken("connection-reuse"):
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	case mistaken("redirects"):
		return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return &http.Client{}
}

// alterBehavior makes the body of a submission another one.
func alterBehavior(r request) {
	if body, ok := r.body.(map[string]any); ok && r.path == "/v1/jobs" {
		body["params"].(map[string]any)["behavior"].(map[string]any)["emit"] = []any{map[string]any{"name": rand.Text()}}
	}
}

// insist submits a job that is refused, four times.
func insist(ctx context.Context, a *api) {
	in := &intention{Key: rand.Text(), Correlation: "order-" + rand.Text(), Body: map[string]any{"type": "NOTHING"}}
	for range 4 {
		_ = a.submit(ctx, in, 0)
	}
}

// dwell does more than it should about jobs that have ended.
func dwell(ctx context.Context, a *api, jobs []*intention) error {
	var all []request
	for _, in := range jobs {
		switch {
		case mistaken("stop-at-end"):
			read := request{method: "GET", path: "/v1/jobs/" + in.ID}
			all = append(all, read, read, read, read, read)
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
