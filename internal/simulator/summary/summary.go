// Package summary puts together what the sessions of a command have shown: which exit code they come to, and how that is told as
// text, JSON, JUnit XML and a page.
package summary

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Policy says what is asked for besides that no rule is broken that says must.
type Policy struct {
	Require  []string // ids of rules that must be held in one session at least, and are broken in none
	Warn     []string // ids of rules that may be broken
	Strict   bool     // what says should is judged as if it said must
	Complete bool     // every rule is exercised, and every fault of the profiles met, in one session at least
}

// level is how much is asked for by a rule that itself asks for so much.
func (p Policy) level(rule string, own verdict.Level) verdict.Level {
	switch {
	case slices.Contains(p.Warn, rule):
		return verdict.Should
	case p.Strict || slices.Contains(p.Require, rule):
		return verdict.Must
	}
	return own
}

// Session is what one session has shown.
type Session struct {
	Disturbed string // by what: a profile, a file, or none
	verdict.Verdict
}

// Summary is what the sessions of a command have shown, in the order in which they began.
type Summary struct {
	Policy   Policy
	Sessions []Session
	Page     string // the file that gets a page, if any
}

// Add adds a session that was disturbed by a file of faults, a profile or nothing, judged by the policy.
func (s *Summary) Add(disturbed string, v verdict.Verdict) {
	wrong := false
	for i := range v.Results {
		r := &v.Results[i]
		r.Level = s.Policy.level(r.Rule, r.Level)
		wrong = wrong || r.Status == verdict.Broken && r.Level == verdict.Must
	}
	if wrong {
		v.Verdict = verdict.Wrong
	} else if v.Counts[verdict.Broken] > 0 {
		v.Verdict = verdict.Improvable
	}
	s.Sessions = append(s.Sessions, Session{cmp.Or(string(v.Profile), disturbed, "none"), v})
}

// conclusions are in the order of what they come to together: that of all sessions is the last one among theirs.
var conclusions = []verdict.Conclusion{verdict.Right, verdict.Incomplete, verdict.Improvable, verdict.Wrong}

// Verdict is that of all sessions together. It is incomplete only if something came to be in none of them.
func (s *Summary) Verdict() verdict.Conclusion {
	if len(s.Sessions) == 1 {
		return s.Sessions[0].Verdict.Verdict
	}
	worst := verdict.Right
	if len(s.unexercised())+len(s.unmet()) > 0 {
		worst = verdict.Incomplete
	}
	for _, n := range s.Sessions {
		if c := n.Verdict.Verdict; c != verdict.Incomplete && slices.Index(conclusions, c) > slices.Index(conclusions, worst) {
			worst = c
		}
	}
	return worst
}

// Headline says what all sessions together come to.
func (s *Summary) Headline() string {
	return map[verdict.Conclusion]string{
		verdict.Right: "The client is right", verdict.Wrong: "The client is wrong",
		verdict.Improvable: "The client is not wrong, and could be better", verdict.Incomplete: "The client is not wrong, as far as this shows",
	}[s.Verdict()]
}

// Requests is the number of requests that all sessions have recorded.
func (s *Summary) Requests() (n int) {
	for i := range s.Sessions {
		n += s.Sessions[i].Recorded
	}
	return n
}

// Missing says what the policy asks for and no session has shown, a sentence each.
func (s *Summary) Missing() (missing []string) {
	statuses := s.statuses()
	for _, rule := range s.Policy.Require {
		if statuses[rule] != verdict.Held && statuses[rule] != verdict.Broken {
			missing = append(missing, "The rule "+rule+" is required, and was not exercised.")
		}
	}
	if !s.Policy.Complete {
		return missing
	}
	if rules := s.unexercised(); len(rules) > 0 {
		missing = append(missing, "These rules were not exercised: "+strings.Join(rules, ", ")+".")
	}
	for _, f := range s.unmet() {
		missing = append(missing, "This fault was not met: "+f+".")
	}
	return missing
}

// Failed reports whether the sessions come to a failure: a rule was broken, or something is missing.
func (s *Summary) Failed() bool { return s.Verdict() == verdict.Wrong || len(s.Missing()) > 0 }

// statuses tells of each rule whether it was broken in a session, else whether it was held in one.
func (s *Summary) statuses() map[string]verdict.Status {
	statuses := map[string]verdict.Status{}
	for _, n := range s.Sessions {
		for _, r := range n.Results {
			if was := statuses[r.Rule]; was == "" || r.Status == verdict.Broken || was == verdict.NotExercised {
				statuses[r.Rule] = r.Status
			}
		}
	}
	return statuses
}

// unexercised are the rules that no session has exercised.
func (s *Summary) unexercised() (rules []string) {
	for rule, status := range s.statuses() {
		if status == verdict.NotExercised {
			rules = append(rules, rule)
		}
	}
	slices.Sort(rules)
	return rules
}

// unmet are the faults of profiles that came to be in no session.
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
