// Package summary combines the results of all sessions of a command. It writes them as text, JSON, JUnit XML and an HTML page.
package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Policy sets which broken or untested rules lead to a failure.
type Policy struct {
	Require  []string // ids of rules that at least one session must obey and no session may break
	Warn     []string // ids of rules that may be broken
	Strict   bool     // "should" rules count as "must" rules
	Complete bool     // at least one session must test each rule, and each fault of the profiles must happen at least once
}

func (p Policy) level(rule string, own verdict.Level) verdict.Level {
	switch {
	case slices.Contains(p.Warn, rule):
		return verdict.Should
	case p.Strict || slices.Contains(p.Require, rule):
		return verdict.Must
	}
	return own
}

// Apply sets the level and the status of a result.
func (p Policy) Apply(r *verdict.Result) {
	r.Level = p.level(r.Rule, r.Level)
	r.Status = r.Status.At(r.Level)
}

// Session is the result of one session.
type Session struct {
	Disturbed string // name of the profile, or of the file of faults, or "none"
	verdict.Verdict
}

// Summary holds the results of a command's sessions, sorted by start.
type Summary struct {
	Policy   Policy
	Baseline *Baseline // may be nil
	Sessions []Session
	Page     string   // path of the HTML page; "": none
	Notes    []string // sentences to print, for example about a failed command
	runs     []Run
}

// Add adds a session and judges it by the policy and the baseline. `disturbed` is the name of the file of faults, or "".
func (s *Summary) Add(disturbed string, v verdict.Verdict) {
	n := Session{cmp.Or(string(v.Profile), disturbed, "none"), v}
	s.judge(&n)
	s.Sessions = append(s.Sessions, n)
}

// judge applies the policy's levels. If a broken "must" rule is in the baseline, it gets the status Warn but keeps the level Must.
func (s *Summary) judge(n *Session) {
	counts := map[verdict.Status]int{}
	for i := range n.Results {
		r := &n.Results[i]
		s.Policy.Apply(r)
		if r.Status == verdict.Fail && s.Baseline.has(n.Disturbed, n.Label, r.Rule) {
			r.Status = verdict.Warn
		}
		counts[r.Status]++
	}
	n.Counts = counts
	switch {
	case counts[verdict.Fail] > 0:
		n.Verdict.Verdict = verdict.Failed
	case n.Verdict.Verdict == verdict.NothingJudged:
	case counts[verdict.Warn] > 0:
		n.Verdict.Verdict = verdict.Warned
	default:
		n.Verdict.Verdict = verdict.Passed
	}
}

// conclusions lists all conclusions from best to worst.
var conclusions = []verdict.Conclusion{verdict.Passed, verdict.Warned, verdict.NothingJudged, verdict.Failed}

// Verdict returns the worst verdict of all sessions. A session is often a single test, which may send no requests. So Verdict ignores a
// session with the verdict NothingJudged, if another session with the same profile and seed has another verdict.
func (s *Summary) Verdict() verdict.Conclusion {
	type run struct {
		disturbed string
		seed      int64
	}
	judged := map[run]bool{}
	for _, n := range s.Sessions {
		judged[run{n.Disturbed, n.Seed}] = judged[run{n.Disturbed, n.Seed}] || n.Verdict.Verdict != verdict.NothingJudged
	}
	if len(s.Sessions) == 0 {
		return verdict.NothingJudged
	}
	worst := verdict.Passed
	for _, n := range s.Sessions {
		c := n.Verdict.Verdict
		if c == verdict.NothingJudged && judged[run{n.Disturbed, n.Seed}] {
			continue
		}
		if slices.Index(conclusions, c) > slices.Index(conclusions, worst) {
			worst = c
		}
	}
	return worst
}

// Results returns the worst result of each rule in all sessions.
func (s *Summary) Results() (all []verdict.Result) {
	worst := []verdict.Status{verdict.NotTested, verdict.OK, verdict.Warn, verdict.Fail}
	for _, n := range s.Sessions {
		for _, r := range n.Results {
			at := slices.IndexFunc(all, func(other verdict.Result) bool { return other.Rule == r.Rule })
			switch {
			case at < 0:
				all = append(all, r)
			case slices.Index(worst, r.Status) > slices.Index(worst, all[at].Status), r.Status == all[at].Status &&
				len(r.Exercise) < len(all[at].Exercise): // prefer the shorter text, because a longer one adds a reason for one profile
				all[at] = r
			}
		}
	}
	return all
}

// Headline returns the combined result of all sessions, such as "FAILED: 1 error, 4 warnings".
func (s *Summary) Headline() string { return verdict.Headline(s.Verdict(), s.Results()) }

// Why returns a sentence that says what was tested, or why nothing was tested.
func (s *Summary) Why() string {
	if len(s.Sessions) == 0 {
		return "No session has ended."
	}
	if len(s.Sessions) == 1 {
		return s.Sessions[0].Why
	}
	text := verdict.Sentence(s.Results())
	for _, n := range s.Sessions {
		if n.Verdict.Verdict == verdict.NothingJudged && s.Verdict() == verdict.NothingJudged {
			return text + " Nothing was judged in " + n.Name() + ": " + n.Why
		}
	}
	if unmet := s.unmet(); len(unmet) > 0 {
		text += fmt.Sprintf(" %d of the profiles' faults did not happen.", len(unmet))
	}
	return text
}

// Guess returns the first description of the API that a session guessed, or nil.
func (s *Summary) Guess() *verdict.Guess {
	for _, n := range s.Sessions {
		if n.Guess != nil && n.Guess.YAML != "" {
			return n.Guess
		}
	}
	return nil
}

// Requests returns the number of recorded requests of all sessions.
func (s *Summary) Requests() (n int) {
	for i := range s.Sessions {
		n += s.Sessions[i].Recorded
	}
	return n
}

// Missing returns a sentence for each unmet requirement of the policy.
func (s *Summary) Missing() (missing []string) {
	var untested []string
	for _, r := range s.Untested() {
		untested = append(untested, r.Rule)
		if slices.Contains(s.Policy.Require, r.Rule) {
			missing = append(missing, "The rule "+r.Rule+" is required, but was not tested: "+r.Reason+".")
		}
	}
	if !s.Policy.Complete {
		return missing
	}
	if len(untested) > 0 {
		missing = append(missing, "These rules were not tested: "+strings.Join(untested, ", ")+".")
	}
	for _, f := range s.unmet() {
		missing = append(missing, "This fault did not happen: "+f+".")
	}
	return missing
}

// Failed reports whether a "must" rule outside the baseline is broken, a requirement is unmet, or a baseline entry is stale.
func (s *Summary) Failed() bool {
	return s.Verdict() == verdict.Failed || len(s.Missing()) > 0 || len(s.Stale()) > 0
}

func (s *Summary) unmet() (faults []string) {
	type kind struct {
		profile fault.Profile
		name    string
		of      fault.Use
	}
	times := map[kind]int{}
	var kinds []kind
	for _, n := range s.Sessions {
		for _, f := range n.Verdict.Faults {
			k := kind{n.Profile, f.Fault, f.Of}
			if _, seen := times[k]; !seen {
				kinds = append(kinds, k)
			}
			times[k] += f.Times
		}
	}
	for _, k := range kinds {
		if times[k] == 0 {
			faults = append(faults, strings.TrimPrefix(fmt.Sprintf("%s: %s (%s)", k.profile, k.name, k.of), ": "))
		}
	}
	return faults
}
