package verdict

import (
	"strings"

	"github.com/forgerun/forgerun/verdict/fault"
)

// ValidLabel reports whether a text may be a session's label. Labels are sent in a header.
func ValidLabel(text string) bool {
	for _, b := range []byte(text) {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return text != "" && len(text) <= MaxLabel && strings.TrimSpace(text) == text
}

// Session is a period in which a client's traffic is recorded and judged.
type Session struct {
	ID        string        `json:"session_id"`
	Label     string        `json:"label,omitempty"` // value of the session header in its requests; empty: requests without that header
	Profile   fault.Profile `json:"profile,omitempty"`
	Seed      int64         `json:"seed"`
	Rules     []string      `json:"rules"` // ids of the judged rules
	CreatedAt fault.Time    `json:"created_at"`
	EndedAt   *fault.Time   `json:"ended_at"`  // nil while it runs
	Recorded  int           `json:"exchanges"` // requests so far; at most MaxExchanges with MaxBytes are judged
}

// Conclusion is the result of a verdict.
type Conclusion string

// The conclusions, from the best to the worst. Only the first two are green.
const (
	Passed        Conclusion = "passed"               // no rule is broken
	Warned        Conclusion = "passed_with_warnings" // only "should" rules are broken
	NothingJudged Conclusion = "nothing_judged"       // the session shows nothing about the client: see Verdict.Why
	Failed        Conclusion = "failed"               // a "must" rule is broken
)

// Words returns the conclusion for people, such as "PASSED WITH WARNINGS".
func (c Conclusion) Words() string { return strings.ToUpper(strings.ReplaceAll(string(c), "_", " ")) }

// Status is the result of a rule.
type Status string

// The statuses of a rule.
const (
	OK        Status = "ok"
	Warn      Status = "warn" // a broken "should" rule
	Fail      Status = "fail" // a broken "must" rule
	NotTested Status = "not_tested"
)

// Broken reports whether the client broke the rule.
func (s Status) Broken() bool { return s == Warn || s == Fail }

// At returns the status of the rule, limited to the level.
func (s Status) At(l Level) Status {
	switch {
	case !s.Broken():
		return s
	case l == Must:
		return Fail
	}
	return Warn
}

// Level is the strictness of a rule, by its cited sentence.
type Level string

// The levels.
const (
	Must   Level = "must"
	Should Level = "should"
)

// Verdict is the result of a session so far.
type Verdict struct {
	Session
	Verdict Conclusion     `json:"verdict"`
	Why     string         `json:"why"`             // one sentence: how many rules were tested, or why none was
	Counts  map[Status]int `json:"counts"`          // of rules
	Judged  int            `json:"judged"`          // judged requests and deliveries
	Faulty  int            `json:"faulty"`          // requests and deliveries changed by a fault
	First   *Moment        `json:"first,omitempty"` // first faulty request; nil if none
	Last    *Moment        `json:"last,omitempty"`  // last faulty request
	Faults  []fault.Count  `json:"faults"`          // by kind
	Guess   *Guess         `json:"guess,omitempty"` // guessed description of the API; nil if a submission was recognized
	Results []Result       `json:"results"`         // of each rule

	journal *journal // nil if the verdict was read from JSON
}

// Guess is a description of an API, guessed from its traffic because no submission was recognized.
type Guess struct {
	Seen string `json:"seen"` // such as "POST /thumbnails answered 201 with {id}"
	YAML string `json:"yaml"` // description for --api; empty if no answer to a POST named anything
}

// Result is the result of one rule.
type Result struct {
	Rule     string     `json:"rule"`  // its id
	Title    string     `json:"title"` // the demand on clients, as a sentence
	Level    Level      `json:"level"`
	Status   Status     `json:"status"`
	Times    int        `json:"times"`              // number of tests
	Failures int        `json:"failures"`           // number of mistakes
	Evidence []Evidence `json:"evidence"`           // first mistakes, or one success
	See      string     `json:"see"`                // address of the sentence with the demand
	Quote    string     `json:"quote"`              // the cited sentence
	Reason   string     `json:"reason,omitempty"`   // short reason why it was not tested
	Exercise string     `json:"exercise,omitempty"` // how to test it
	Fix      Fix        `json:"fix"`
}

// Fix describes the right behavior, with a line of code in three languages.
type Fix struct {
	Text       string `json:"text"`
	Python     string `json:"python"`
	TypeScript string `json:"typescript"`
	Go         string `json:"go"`
}

// Evidence shows how a rule was kept or broken: the request that set the expectation, and the request that met or broke it.
type Evidence struct {
	Found    string  `json:"found"`             // what the client did
	Expected string  `json:"expected"`          // what it should have done
	Times    int     `json:"times"`             // number of equal occurrences
	Before   *Moment `json:"before,omitempty"`  // request that set the expectation; nil if none
	Request  *Moment `json:"request,omitempty"` // request that kept or broke the rule; nil if none came
}

// Moment is a request as evidence. It stands for all equal ones.
type Moment struct {
	At         fault.Time `json:"at"`
	Until      fault.Time `json:"until"`
	Request    string     `json:"request"`              // such as "GET /v1/jobs/0190..."
	Headers    []string   `json:"headers"`              // headers that rules use
	Connection uint64     `json:"connection,omitempty"` // its number; 0: unknown
	Answer     string     `json:"answer"`               // such as "503 RFA_STORAGE_UNAVAILABLE, Retry-After: 2"
	Fault      string     `json:"fault,omitempty"`      // fault that it got, in words
}
