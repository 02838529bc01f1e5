package testbed

import "github.com/forgerun/forgerun/job"

// Session is a time in which a client's traffic is recorded and judged.
type Session struct {
	ID        job.ID    `json:"session_id"`
	Profile   Profile   `json:"profile,omitempty"`
	Seed      int64     `json:"seed"`
	Rules     []string  `json:"rules"` // ids of the rules that are judged
	CreatedAt job.Time  `json:"created_at"`
	EndedAt   *job.Time `json:"ended_at"`  // nil while it runs
	Recorded  int       `json:"exchanges"` // requests so far; MaxExchanges with MaxBytes are judged
}

// Conclusion says what a verdict comes to.
type Conclusion string

// A client is right if it broke no rule, and each that was asked for was exercised, by all that the profile is about.
const (
	Right      Conclusion = "right"
	Wrong      Conclusion = "wrong"           // it broke a rule that says must
	Improvable Conclusion = "could_be_better" // it broke rules that say should
	Incomplete Conclusion = "incomplete"      // no rule is broken, and some were not exercised, or faults did not come to be
)

// Status says whether a client kept to a rule.
type Status string

// The statuses of a rule.
const (
	Held         Status = "held"
	Broken       Status = "broken"
	NotExercised Status = "not_exercised"
)

// Level says how much a rule asks for, by the sentence that it cites.
type Level string

// The levels.
const (
	Must   Level = "must"
	Should Level = "should"
)

// Verdict is what a session has shown of a client so far.
type Verdict struct {
	Session
	Verdict Conclusion     `json:"verdict"`
	Counts  map[Status]int `json:"counts"` // of rules
	Faults  []FaultCount   `json:"faults"`
	Results []RuleResult   `json:"results"`
}

// RuleResult is what a session has shown about one rule.
type RuleResult struct {
	Rule     string     `json:"rule"`  // its id
	Title    string     `json:"title"` // what a client should do, as a sentence
	Level    Level      `json:"level"`
	Status   Status     `json:"status"`
	Times    int        `json:"times"`              // how often it was exercised
	Failures int        `json:"failures"`           // how often it was broken
	Evidence []Evidence `json:"evidence"`           // of the first times it was broken, or of one time that it was held
	See      string     `json:"see"`                // address of the sentence that asks for it
	Quote    string     `json:"quote"`              // that sentence
	Exercise string     `json:"exercise,omitempty"` // what would exercise it; only if nothing has
}

// Evidence is one moment that shows how a rule was kept or broken.
type Evidence struct {
	At       job.Time `json:"at"`
	Request  string   `json:"request"`         // such as "GET /v1/jobs/0190..."
	Answer   string   `json:"answer"`          // such as "503 RFA_STORAGE_UNAVAILABLE, Retry-After: 2"
	Fault    string   `json:"fault,omitempty"` // that was done to it
	Found    string   `json:"found"`           // what the client did
	Expected string   `json:"expected"`        // and what it should have done
}
