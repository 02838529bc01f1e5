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
	Label     string        `json:"label,omitempty"` // header value of its requests; empty: requests without the header
	Profile   fault.Profile `json:"profile,omitempty"`
	Seed      int64         `json:"seed"`
	Rules     []string      `json:"rules"` // ids of the rules that are judged
	CreatedAt fault.Time    `json:"created_at"`
	EndedAt   *fault.Time   `json:"ended_at"`  // nil while it runs
	Recorded  int           `json:"exchanges"` // requests so far; at most MaxExchanges with MaxBytes are judged
}

// Conclusion is what a verdict comes to.
type Conclusion string

// The conclusions, from the best to the worst. Only the first two are green.
const (
	Passed        Conclusion = "passed"               // no rule is broken
	Warned        Conclusion = "passed_with_warnings" // only rules that say should are broken
	NothingJudged Conclusion = "nothing_judged"       // the session shows nothing about the client: see Verdict.Why
	Failed        Conclusion = "failed"               // a rule that says must is broken
)

// Words returns the conclusion as people read it, such as "PASSED WITH WARNINGS".
func (c Conclusion) Words() string { return strings.ToUpper(strings.ReplaceAll(string(c), "_", " ")) }

// Status says whether a client kept a rule.
type Status string

// The statuses of a rule.
const (
	OK        Status = "ok"
	Warn      Status = "warn" // broken, and the rule says should
	Fail      Status = "fail" // broken, and the rule says must
	NotTested Status = "not_tested"
)

// Broken reports whether the client broke the rule.
func (s Status) Broken() bool { return s == Warn || s == Fail }

// At returns the status of the rule if it asks for as much as the level.
func (s Status) At(l Level) Status {
	switch {
	case !s.Broken():
		return s
	case l == Must:
		return Fail
	}
	return Warn
}

// Level is how much a rule asks for, by the sentence that it cites.
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
	Why     string         `json:"why"`             // one sentence: what was tested and what was not, or why nothing was
	Counts  map[Status]int `json:"counts"`          // of rules
	Judged  int            `json:"judged"`          // requests and deliveries that the rules looked at
	Faulty  int            `json:"faulty"`          // requests and deliveries that a fault changed
	First   *Moment        `json:"first,omitempty"` // the first of these; nil: none
	Last    *Moment        `json:"last,omitempty"`  // and the last
	Faults  []fault.Count  `json:"faults"`          // by kind
	Guess   *Guess         `json:"guess,omitempty"` // a description of the API, if no submission was recognised; else nil
	Results []Result       `json:"results"`         // of each rule

	journal *journal // nil: the verdict was read from JSON
}

// Guess describes an API of which no submission was recognised, as far as its traffic tells.
type Guess struct {
	Seen string `json:"seen"` // such as "POST /thumbnails answered 201 with {id}"
	YAML string `json:"yaml"` // a description for --api; empty: no answer to a POST named anything
}

// Result is what a session has shown about one rule.
type Result struct {
	Rule     string     `json:"rule"`  // its id
	Title    string     `json:"title"` // what a client should do, as a sentence
	Level    Level      `json:"level"`
	Status   Status     `json:"status"`
	Times    int        `json:"times"`              // how often it was tested
	Failures int        `json:"failures"`           // how often it was broken
	Evidence []Evidence `json:"evidence"`           // of the first times it was broken, or of one time that it was kept
	See      string     `json:"see"`                // address of the sentence that asks for it
	Quote    string     `json:"quote"`              // that sentence
	Reason   string     `json:"reason,omitempty"`   // why it was not tested, in a few words
	Exercise string     `json:"exercise,omitempty"` // what would test it
	Fix      Fix        `json:"fix"`
}

// Fix says what a client does right, with a line of code in three languages.
type Fix struct {
	Text       string `json:"text"`
	Python     string `json:"python"`
	TypeScript string `json:"typescript"`
	Go         string `json:"go"`
}

// Evidence shows how a rule was kept or broken: the request that set the expectation, and the one that met it or did not.
type Evidence struct {
	Found    string  `json:"found"`             // what the client did
	Expected string  `json:"expected"`          // what it should have done
	Times    int     `json:"times"`             // how often in the same way
	Before   *Moment `json:"before,omitempty"`  // the request that set the expectation; nil: none did
	Request  *Moment `json:"request,omitempty"` // the one that kept or broke the rule; nil: none came
}

// Moment is a request as evidence: the first of several that are alike.
type Moment struct {
	At         fault.Time `json:"at"`
	Until      fault.Time `json:"until"`
	Request    string     `json:"request"`              // such as "GET /v1/jobs/0190..."
	Headers    []string   `json:"headers"`              // the ones that rules go by
	Connection uint64     `json:"connection,omitempty"` // its number; 0: unknown
	Answer     string     `json:"answer"`               // such as "503 RFA_STORAGE_UNAVAILABLE, Retry-After: 2"
	Fault      string     `json:"fault,omitempty"`      // what was done to it
}
