package client

import (
	"context"
	"encoding/json"
)

// Fault is a rule about what a test bed does to this client's own traffic, with what became of it.
type Fault struct {
	RuleID  string          `json:"rule_id,omitempty"`
	Match   json.RawMessage `json:"match,omitempty"` // such as {"operation": "submitJob", "nth": 1}; nil: all requests
	Effect  json.RawMessage `json:"effect"`          // such as {"close": "after_commit"}
	Seen    int64           `json:"seen,omitempty"`  // requests that it was about
	Applied int64           `json:"applied,omitempty"`
}

// FaultRules are the rules of a client: those given, and those of a profile after them.
type FaultRules struct {
	Profile string // such as flaky-network; "" for none
	Seed    int64  // 0 stands for 1
	Rules   []Fault
}

// MarshalJSON writes the request for the rules.
func (f FaultRules) MarshalJSON() ([]byte, error) {
	type rule struct {
		Match  json.RawMessage `json:"match,omitempty"`
		Effect json.RawMessage `json:"effect"`
	}
	request := struct {
		Profile string `json:"profile,omitempty"`
		Seed    int64  `json:"seed,omitempty"`
		Rules   []rule `json:"rules,omitempty"`
	}{Profile: f.Profile, Seed: f.Seed}
	for _, r := range f.Rules {
		request.Rules = append(request.Rules, rule{r.Match, r.Effect})
	}
	return json.Marshal(request)
}

type faultList struct {
	Data []Fault `json:"data"`
}

// SetFaults replaces the rules of this client by others, and gives them with their ids. Only a test bed has rules; another service
// answers 404.
func (c *Client) SetFaults(ctx context.Context, rules FaultRules, options ...Option) ([]Fault, error) {
	return c.faults(ctx, newRequest("PUT", options, []string{"testbed", "faults"}).with(rules))
}

// Faults lists the rules of this client, with how often each applied.
func (c *Client) Faults(ctx context.Context, options ...Option) ([]Fault, error) {
	return c.faults(ctx, get(options, "testbed", "faults"))
}

func (c *Client) faults(ctx context.Context, r *request) ([]Fault, error) {
	list, err := fetch(ctx, c, r, func(*faultList, *answer) *string { return nil })
	if err != nil {
		return nil, err
	}
	return list.Data, nil
}

// FixtureRequest is a job that a test wants to be in a state.
type FixtureRequest struct {
	State         string          `json:"state"`              // scheduled, running, succeeded, failed, exhausted, canceled, gone or expired
	Progress      int             `json:"progress,omitempty"` // percent, of a running one; 0 stands for 40
	CorrelationID string          `json:"correlation_id,omitempty"`
	Problem       json.RawMessage `json:"problem,omitempty"` // of one that failed
	Result        json.RawMessage `json:"result,omitempty"`  // of one that succeeded
}

// Fixture is a job that was made for a test.
type Fixture struct {
	JobID   string `json:"job_id"`
	Fixture string `json:"fixture"` // the state that was asked for
	State   string `json:"state"`
}

// MakeFixtures makes jobs, up to 20, and returns when workers have brought each into its state.
func (c *Client) MakeFixtures(ctx context.Context, wanted []FixtureRequest, options ...Option) ([]Fixture, error) {
	type fixtures struct {
		Jobs []Fixture `json:"jobs"`
	}
	request := map[string]any{"jobs": wanted}
	made, err := fetch(ctx, c, post(options, "testbed", "fixtures").with(request).keyed(), func(*fixtures, *answer) *string { return nil })
	if err != nil {
		return nil, err
	}
	return made.Jobs, nil
}

// Reset removes all jobs, batches, webhooks, bulk operations, rules and idempotency keys of this client, and gives the numbers of
// rows by table.
func (c *Client) Reset(ctx context.Context, options ...Option) (map[string]int, error) {
	type reset struct {
		Removed map[string]int `json:"removed"`
	}
	done, err := fetch(ctx, c, post(options, "testbed", "reset").keyed(), func(*reset, *answer) *string { return nil })
	if err != nil {
		return nil, err
	}
	return done.Removed, nil
}
