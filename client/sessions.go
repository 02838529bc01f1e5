package client

import (
	"context"
	"time"
)

// Session is a time in which a test bed records the traffic of this client, to judge it.
type Session struct {
	SessionID string    `json:"session_id"`
	Profile   string    `json:"profile"`
	Seed      int64     `json:"seed"`
	Rules     []string  `json:"rules"`
	CreatedAt time.Time `json:"created_at"`
	EndedAt   time.Time `json:"ended_at"`  // zero while it runs
	Exchanges int       `json:"exchanges"` // requests so far
	RequestID string    `json:"-"`
}

// SessionRequest says what a session is to be like. The zero value records without faults, for all rules.
type SessionRequest struct {
	Profile string   `json:"profile,omitempty"` // of faults, such as flaky-network
	Seed    int64    `json:"seed,omitempty"`
	Rules   []string `json:"rules,omitempty"` // ids of those to judge; none: all
}

// Verdict is what a session has shown of this client so far.
type Verdict struct {
	Session
	Verdict string         `json:"verdict"` // right, wrong or incomplete
	Counts  map[string]int `json:"counts"`  // of rules: held, broken, not_exercised
	Results []RuleResult   `json:"results"`
}

// RuleResult is what a session has shown about one rule.
type RuleResult struct {
	Rule     string     `json:"rule"`
	Title    string     `json:"title"`
	Status   string     `json:"status"` // held, broken or not_exercised
	Times    int        `json:"times"`
	Failures int        `json:"failures"`
	Evidence []Evidence `json:"evidence"`
	See      string     `json:"see"`
	Exercise string     `json:"exercise"` // what would exercise it; "" if something has
}

// Evidence is one moment that shows how a rule was kept or broken.
type Evidence struct {
	At       time.Time `json:"at"`
	Request  string    `json:"request"`
	Answer   string    `json:"answer"`
	Fault    string    `json:"fault"`
	Found    string    `json:"found"`
	Expected string    `json:"expected"`
}

// StartSession begins a session. Only a test bed has them; another service answers 404. While one is open, a second is a Problem
// with status 409.
func (c *Client) StartSession(ctx context.Context, session SessionRequest, options ...Option) (*Session, error) {
	return c.session(ctx, post(options, "testbed", "sessions").with(session).keyed())
}

// EndSession ends a session, and the faults of its profile. Safe to repeat.
func (c *Client) EndSession(ctx context.Context, id string, options ...Option) (*Session, error) {
	return c.session(ctx, post(options, "testbed", "sessions", id, "end").of(id))
}

func (c *Client) session(ctx context.Context, r *request) (*Session, error) {
	return fetch(ctx, c, r, func(s *Session, a *answer) *string {
		s.RequestID = a.requestID()
		return &s.SessionID
	})
}

// VerdictAs reads the same in another form: as JUnit XML (application/xml), or as a page (text/html).
func (c *Client) VerdictAs(ctx context.Context, id, mediaType string, options ...Option) ([]byte, error) {
	r := get(options, "testbed", "sessions", id, "verdict")
	r.raw = true
	r.set("Accept", mediaType)
	a, err := c.send(ctx, r)
	if err != nil {
		return nil, err
	}
	return a.body, nil
}

// Verdict reads what a session has shown so far, or at its end.
func (c *Client) Verdict(ctx context.Context, id string, options ...Option) (*Verdict, error) {
	return fetch(ctx, c, get(options, "testbed", "sessions", id, "verdict").of(id), func(v *Verdict, a *answer) *string {
		v.RequestID = a.requestID()
		return &v.SessionID
	})
}
