package verdict

import (
	"strings"

	"github.com/forgerun/forgerun/verdict/fault"
)

// ValidLabel reports whether a text may be the label of a session. A label must fit into a header: printable ASCII, without spaces at its
// ends.
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
	Label     string        `json:"label,omitempty"` // value of the header ForgeRun-Session in the session's requests; may be empty
	Profile   fault.Profile `json:"profile,omitempty"`
	Seed      int64         `json:"seed"`
	Rules     []string      `json:"rules"` // ids of the judged rules
	CreatedAt fault.Time    `json:"created_at"`
	EndedAt   *fault.Time   `json:"ended_at"`  // nil while the session is open
	Recorded  int           `json:"exchanges"` // number of requests so far; requests beyond MaxExchanges or the limit in bytes are not judged
}

// Conclusion is the result of a verdict.
type Conclusion string

// The conclusions, from best to worst. The first two are a success.
const (
	Passed        Conclusion = "passed"               // no rule is broken
	Warned        Conclusion = "passed_with_warnings" // only "should" rules are broken
	NothingJudged Conclusion = "nothing_judged"       // the session shows nothing about the client: see Verdict.Why
	Failed        Conclusion = "failed"               // a "must" rule is broken
)

// Words returns the conclusion in words, such as "PASSED WITH WARNINGS".
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

// At turns a broken status into Fail for "must" rules and into Warn for "should" rules. It returns other statuses unchanged.
func (s Status) At(l Level) Status {
	switch {
	case !s.Broken():
		return s
	case l == Must:
		return Fail
	}
	return Warn
}

// Level is "must" or "should", as in the requirement that the rule cites.
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
	Why     string         `json:"why"` // how many rules passed, or why nothing was judged
	Counts  map[Status]int `json:"counts"`
	Judged  int            `json:"judged"`          // number of judged requests and deliveries
	Faulty  int            `json:"faulty"`          // number of requests and deliveries with a fault
	First   *Moment        `json:"first,omitempty"` // first request with a fault
	Last    *Moment        `json:"last,omitempty"`  // last request with a fault
	Faults  []fault.Count  `json:"faults"`          // number of faults by kind and by purpose of the requests
	Guess   *Guess         `json:"guess,omitempty"` // guessed description of the API; set only if no submission was recognized
	Results []Result       `json:"results"`

	journal *journal // nil if the verdict was read from JSON
}

// Guess is a description of an API, guessed from its traffic because no submission was recognized.
type Guess struct {
	Seen string `json:"seen"` // summary, such as "POST /thumbnails answered 201 with {id}"
	YAML string `json:"yaml"` // description for --api; empty if no response to a POST named a resource
}

// Result is the result of one rule.
type Result struct {
	Rule     string     `json:"rule"`
	Title    string     `json:"title"` // demand on clients, as a sentence
	Level    Level      `json:"level"`
	Status   Status     `json:"status"`
	Times    int        `json:"times"` // how often the session tested the rule
	Failures int        `json:"failures"`
	Evidence []Evidence `json:"evidence"` // the first mistakes, or one success
	See      string     `json:"see"`      // URL of the cited requirement
	Quote    string     `json:"quote"`
	Reason   string     `json:"reason,omitempty"`
	Exercise string     `json:"exercise,omitempty"` // how to test the rule
	Fix      Fix        `json:"fix"`
}

// Fix describes the right behavior, with a line of code in three languages.
type Fix struct {
	Text       string `json:"text"`
	Python     string `json:"python"`
	TypeScript string `json:"typescript"`
	Go         string `json:"go"`
}

// Evidence is a request that kept or broke a rule, with the earlier request that made the rule apply.
type Evidence struct {
	Found    string  `json:"found"`
	Expected string  `json:"expected"`
	Times    int     `json:"times"`             // number of equal occurrences
	Before   *Moment `json:"before,omitempty"`  // nil if the rule applies without an earlier request
	Request  *Moment `json:"request,omitempty"` // nil if the mistake is that the client did not send a request
}

// Moment is a request as evidence.
type Moment struct {
	At         fault.Time `json:"at"`
	Until      fault.Time `json:"until"`
	Request    string     `json:"request"`              // such as "GET /v1/jobs/0190..."
	Headers    []string   `json:"headers"`              // headers that rules use
	Connection uint64     `json:"connection,omitempty"` // number of the connection; 0: unknown
	Answer     string     `json:"answer"`               // such as "503 RFA_STORAGE_UNAVAILABLE, Retry-After: 2"
	Fault      string     `json:"fault,omitempty"`      // fault of the request, in words
}
