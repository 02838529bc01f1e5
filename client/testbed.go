package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"time"
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
	var list struct {
		Data []Fault `json:"data"`
	}
	_, err := c.call(ctx, r, &list)
	return list.Data, err
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
	var made struct {
		Jobs []Fixture `json:"jobs"`
	}
	_, err := c.call(ctx, post(options, "testbed", "fixtures").with(map[string]any{"jobs": wanted}).keyed(), &made)
	return made.Jobs, err
}

// Reset removes all jobs, batches, webhooks, bulk operations, rules and idempotency keys of this client, and gives the numbers of
// rows by table.
func (c *Client) Reset(ctx context.Context, options ...Option) (map[string]int, error) {
	var done struct {
		Removed map[string]int `json:"removed"`
	}
	_, err := c.call(ctx, post(options, "testbed", "reset").keyed(), &done)
	return done.Removed, err
}

// Session is a time in which a test bed records the traffic of this client, to judge it.
type Session struct {
	SessionID string    `json:"session_id"`
	Label     string    `json:"label"` // that its requests carry; "": those that carry none
	Profile   string    `json:"profile"`
	Seed      int64     `json:"seed"`
	Rules     []string  `json:"rules"`
	CreatedAt time.Time `json:"created_at"`
	EndedAt   time.Time `json:"ended_at"`  // zero while it runs
	Exchanges int       `json:"exchanges"` // requests so far
	Meta      `json:"-"`
}

// SessionRequest says what a session is to be like. The zero value records without faults, for all rules.
type SessionRequest struct {
	Label   string   `json:"label,omitempty"`   // of its requests, see Config.Session; "": those without one
	Profile string   `json:"profile,omitempty"` // of faults, such as flaky-network
	Seed    int64    `json:"seed,omitempty"`
	Rules   []string `json:"rules,omitempty"` // ids of those to judge; none: all
}

// Verdict is what a session has shown of this client so far.
type Verdict struct {
	Session
	Verdict string         `json:"verdict"` // passed, passed_with_warnings, failed or nothing_judged
	Why     string         `json:"why"`     // what was tested, or why nothing was
	Counts  map[string]int `json:"counts"`  // of rules: ok, warn, fail, not_tested
	Judged  int            `json:"judged"`  // requests and deliveries that the rules looked at
	Faulty  int            `json:"faulty"`  // requests and deliveries that a fault changed
	First   *Moment        `json:"first"`   // the first of these; nil: there is none
	Last    *Moment        `json:"last"`    // and the last
	Guess   *VerdictGuess  `json:"guess"`   // nil, except from forgerun proxy
	Faults  []FaultCount   `json:"faults"`
	Results []RuleResult   `json:"results"`
}

// FaultCount tells how often a kind of fault happened to requests of a use.
type FaultCount struct {
	Fault    string `json:"fault"`
	Of       string `json:"of"`
	Requests int    `json:"requests"` // of this use
	Times    int    `json:"times"`    // 0: the profile is about it, and it did not come to be
}

// RuleResult is what a session has shown about one rule.
type RuleResult struct {
	Rule     string     `json:"rule"`
	Title    string     `json:"title"`
	Level    string     `json:"level"`  // must or should
	Status   string     `json:"status"` // ok, warn, fail or not_tested
	Times    int        `json:"times"`
	Failures int        `json:"failures"`
	Evidence []Evidence `json:"evidence"`
	See      string     `json:"see"`
	Quote    string     `json:"quote"`    // the sentence that asks for it
	Reason   string     `json:"reason"`   // why it was not tested; "" if it was
	Exercise string     `json:"exercise"` // what would test it; "" if something has
	Fix      RuleFix    `json:"fix"`
}

// VerdictGuess describes an API of which no submission was recognised.
type VerdictGuess struct {
	Seen string `json:"seen"`
	YAML string `json:"yaml"` // a description for --api
}

// RuleFix says what a client does right, with a line of code in three languages.
type RuleFix struct {
	Text       string `json:"text"`
	Python     string `json:"python"`
	TypeScript string `json:"typescript"`
	Go         string `json:"go"`
}

// Evidence is how a rule was kept or broken: the request that set the expectation, and the one that met it or did not.
type Evidence struct {
	Found    string  `json:"found"`
	Expected string  `json:"expected"`
	Times    int     `json:"times"`   // how often in the same way
	Before   *Moment `json:"before"`  // nil: no request set the expectation
	Request  *Moment `json:"request"` // nil: none came
}

// Moment is a request as evidence has it.
type Moment struct {
	At         time.Time `json:"at"`
	Until      time.Time `json:"until"`
	Request    string    `json:"request"`
	Headers    []string  `json:"headers"`
	Connection int64     `json:"connection"` // its number; 0: not known
	Answer     string    `json:"answer"`
	Fault      string    `json:"fault"`
}

// WithSession gives a client whose requests belong to the test bed's session with that label, over the same connections: one for each
// test. The service refuses one that is longer than 200 characters or not ASCII.
func (c *Client) WithSession(label string) *Client {
	other := *c
	if other.session = label; !fieldValue(label) {
		other.err = errors.New("client: the session has characters that a header cannot have")
	}
	return &other
}

// StartSession begins a session. Only a test bed has them; another service answers 404. While one is open, a second with the
// same label, or none, is a Problem with status 409.
func (c *Client) StartSession(ctx context.Context, session SessionRequest, options ...Option) (*Session, error) {
	return fetch[Session](ctx, c, post(options, "testbed", "sessions").with(session).keyed())
}

// Sessions lists the sessions of this client, the latest first.
func (c *Client) Sessions(ctx context.Context) iter.Seq2[Session, error] {
	return list[Session](ctx, c, get(nil, "testbed", "sessions"), false)
}

// EndSession ends a session, and the faults of its profile. Safe to repeat.
func (c *Client) EndSession(ctx context.Context, id string, options ...Option) (*Session, error) {
	return fetch[Session](ctx, c, post(options, "testbed", "sessions", id, "end").of(id))
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
	return fetch[Verdict](ctx, c, get(options, "testbed", "sessions", id, "verdict").of(id))
}

// JournalEntry is a request of a session, or an attempt to deliver.
type JournalEntry struct {
	Number int `json:"number"` // from 1, in the order of their beginnings
	Moment
	Job    string   `json:"job"`    // "" if it was about none
	Breaks []string `json:"breaks"` // the rules that it broke, or that it called for and no request kept
}

const maxJournal = 256 << 20

// Journal reads all that a verdict is about, by which it can be checked.
func (c *Client) Journal(ctx context.Context, id string, options ...Option) iter.Seq2[JournalEntry, error] {
	return func(yield func(JournalEntry, error) bool) {
		r := get(options, "testbed", "sessions", id, "journal")
		r.limit, r.wait, r.raw = maxJournal, resultTime, true
		r.set("Accept", "application/x-ndjson, application/problem+json")
		a, err := c.send(ctx, r)
		if err != nil {
			yield(JournalEntry{}, err)
			return
		}
		for lines := json.NewDecoder(bytes.NewReader(a.body)); lines.More(); {
			var e JournalEntry
			if err := lines.Decode(&e); err != nil {
				yield(e, r.unexpected(a, "it is no journal"))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Clock is the time by which the jobs of a test bed live.
type Clock struct {
	Now    time.Time `json:"now"`
	Offset string    `json:"offset"` // by how much it is ahead of the real time, such as 25h0m0s
	Rate   float64   `json:"rate"`   // how many of its seconds pass in a second, unless it is frozen
	Frozen bool      `json:"frozen"`
}

// Clock reads the clock of a test bed; another service answers 404.
func (c *Client) Clock(ctx context.Context, options ...Option) (*Clock, error) {
	return fetch[Clock](ctx, c, get(options, "testbed", "clock"))
}

// AdvanceClock moves the clock of the whole service by so much, and returns when the jobs that have become due are QUEUED.
func (c *Client) AdvanceClock(ctx context.Context, by time.Duration, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "advance", by.String())
}

// SetClock moves the clock to a time that is not before its present one.
func (c *Client) SetClock(ctx context.Context, to time.Time, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "set", apiTime(to))
}

// FreezeClock stops the clock.
func (c *Client) FreezeClock(ctx context.Context, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "freeze", true)
}

// ThawClock lets the clock run on, at the rate that it had.
func (c *Client) ThawClock(ctx context.Context, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "freeze", false)
}

// SetClockRate lets the clock run so fast, from 0.1 to 3,600 times, also if it was frozen.
func (c *Client) SetClockRate(ctx context.Context, rate float64, options ...Option) (*Clock, error) {
	return c.moveClock(ctx, options, "rate", rate)
}

func (c *Client) moveClock(ctx context.Context, options []Option, how string, value any) (*Clock, error) {
	return fetch[Clock](ctx, c, post(options, "testbed", "clock").with(map[string]any{how: value}).keyed())
}
