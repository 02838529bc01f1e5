package verdict

import (
	"strings"

	"github.com/forgerun/forgerun/verdict/fault"
)

// ValidLabel reports whether a text may be a session's label: it is sent in a header.
func ValidLabel(text string) bool {
	for _, b := range []byte(text) {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return text != "" && len(text) <= MaxLabel && strings.TrimSpace(text) == text
}

// Session is a time in which a client's traffic is recorded and judged.
type Session struct {
	ID        string        `json:"session_id"`
	Label     string        `json:"label,omitempty"` // that its requests carry; empty: those that carry none
	Profile   fault.Profile `json:"profile,omitempty"`
	Seed      int64         `json:"seed"`
	Rules     []string      `json:"rules"` // ids of the rules that are judged
	CreatedAt fault.Time    `json:"created_at"`
	EndedAt   *fault.Time   `json:"ended_at"`  // nil while it runs
	Recorded  int           `json:"exchanges"` // requests so far; MaxExchanges with MaxBytes are judged
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
	Faults  []fault.Count  `json:"faults"`
	Results []Result       `json:"results"`

	journal *journal // of what was judged; nil: it was not judged here
}

// Result is what a session has shown about one rule.
type Result struct {
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

// Evidence is how a rule was kept or broken: the request that set the expectation, and the one that met it or did not.
type Evidence struct {
	Found    string  `json:"found"`             // what the client did
	Expected string  `json:"expected"`          // and what it should have done
	Times    int     `json:"times"`             // how often in the same way
	Before   *Moment `json:"before,omitempty"`  // the request that set the expectation; nil: none did
	Request  *Moment `json:"request,omitempty"` // the one that kept or broke the rule; nil: none came
}

// Moment is a request as evidence has it, the first one of several that are alike.
type Moment struct {
	At         fault.Time `json:"at"`
	Until      fault.Time `json:"until"`
	Request    string     `json:"request"`              // such as "GET /v1/jobs/0190..."
	Headers    []string   `json:"headers"`              // that rules go by
	Connection uint64     `json:"connection,omitempty"` // its number; 0: not known
	Answer     string     `json:"answer"`               // such as "503 RFA_STORAGE_UNAVAILABLE, Retry-After: 2"
	Fault      string     `json:"fault,omitempty"`      // that was done to it
}
