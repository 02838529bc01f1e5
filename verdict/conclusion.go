package verdict

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// trivial lists rules that can be tested with any requests. A client that passes only these rules has shown little.
var trivial = []string{"no-key-in-url", "connection-reuse", "content-negotiation"}

// noRetryIdentity says why rules about retries were not tested if the client sends neither keys nor correlation ids.
const noRetryIdentity = "retries cannot be distinguished from new submissions"

const (
	maxReasons = 4
	maxState   = 40 // longer states are cut to this number of bytes
)

func (r *record) conclude(v *Verdict) {
	nothing := r.whyNothingJudged(v)
	v.Why = Sentence(v.Results)
	if n := v.Recorded - v.Judged; n > 0 {
		v.Why += fmt.Sprintf(" %d of %d requests were not judged, because the session had reached its size limit.", n, v.Recorded)
	}
	if slices.ContainsFunc(v.Results, func(result Result) bool { return result.Reason == noRetryIdentity }) {
		v.Why += " Retries cannot be distinguished from new submissions: send an Idempotency-Key with each submission."
	}
	if n := v.Unmet(); n > 0 {
		v.Why += fmt.Sprintf(" %d of the profile's faults did not happen.", n)
	}
	switch {
	case v.Counts[Fail] > 0:
		v.Verdict = Failed
	case nothing != "":
		v.Verdict, v.Why = NothingJudged, nothing
	case v.Counts[Warn] > 0:
		v.Verdict = Warned
	default:
		v.Verdict = Passed
	}
}

func (r *record) whyNothingJudged(v *Verdict) string {
	answered, posted, submitted, unreached := 0, false, false, ""
	r.each(func(x *exchange) {
		switch {
		case x.Unreached != "":
			unreached = x.Unreached
		case x.Fault == nil || !x.Fault.Replaces():
			answered++
		}
		submitted = submitted || submits(x) && x.Made != ""
		posted = posted || x.Method == http.MethodPost && accepted(x)
	})
	tested := slices.ContainsFunc(v.Results, func(result Result) bool {
		return result.Status != NotTested && (!slices.Contains(trivial, result.Rule) || !slices.ContainsFunc(r.Session.Rules, substantial))
	})
	switch {
	case len(r.exchanges)+len(r.sent)+len(r.Attempts) == 0:
		return "No request arrived."
	case answered == 0 && unreached != "":
		return "The target never answered: " + unreached + "."
	case r.Standards && posted && !submitted && len(r.Attempts) == 0:
		v.Guess = r.Guess
		if r.Guess == nil {
			return "No submission was recognised: no response to a POST contained a job id. Describe the API with --api."
		}
		return "No submission was recognised: " + r.Guess.Seen + ". Describe the API with --api."
	case !tested && !submitted:
		return "No rule about jobs was tested: " + strings.Join(reasons(v.Results), ", ") + "."
	}
	return ""
}

func substantial(rule string) bool { return !slices.Contains(trivial, rule) }

// untested returns the reason why a rule was not tested, for the text that Sentence writes.
func (r *record) untested(rule rule) string {
	switch rule.id {
	case "stream-resume", "half-events":
		if !slices.ContainsFunc(r.exchanges, func(x exchange) bool { return x.Stream != nil }) {
			return "no event stream"
		}
	case "retry-only-retryable":
		if r.Standards {
			return "no request was refused with 401, 403 or 410"
		}
		fallthrough
	case "idempotency-key", "one-job-per-intention", "retry-budget":
		if slices.ContainsFunc(r.exchanges, func(x exchange) bool { return failed(&x) && unnamed(&x) }) {
			return noRetryIdentity
		}
	case "no-duplicates":
		if slices.ContainsFunc(r.exchanges, func(x exchange) bool { return submits(&x) && !x.Arrived() && accepted(&x) }) {
			return "the response to a submission was lost, but no retry of it was accepted"
		}
	case "stop-at-end", "outcome-learned":
		if len(r.States) > 0 && len(r.ends) == 0 && !slices.ContainsFunc(r.Runs, func(run Run) bool { return !run.Finished.IsZero() }) {
			return unknownEnd(r.States)
		}
	case "tampered-refused", "repeated-delivery":
		if len(r.Attempts) == 0 {
			return "no webhooks"
		}
	}
	return rule.untested
}

// unknownEnd returns the reason why no end of a job was judged: the service's states, quoted and shortened, and how to name the final ones.
func unknownEnd(states []string) string {
	shown := make([]string, len(states))
	for i, state := range states {
		if len(state) > maxState {
			state = strings.ToValidUTF8(state[:maxState], "") + "..."
		}
		shown[i] = strconv.Quote(state)
	}
	return "states seen: " + strings.Join(shown, ", ") +
		"; none is known as final: if one is, describe the API (--api FILE with job: {final: [...]})"
}

// An unnamed submission has neither key nor correlation id. Its retries look like new submissions.
func unnamed(x *exchange) bool { return submits(x) && x.Key == "" && x.Correlation == "" }

func reasons(results []Result) (all []string) {
	for _, r := range results {
		if r.Status == NotTested && r.Reason != "" && !slices.Contains(all, r.Reason) {
			all = append(all, r.Reason)
		}
	}
	if n := len(all) - maxReasons; n > 1 {
		all = append(all[:maxReasons:maxReasons], fmt.Sprintf("and %d more reasons", n))
	}
	return all
}

// Having returns the results with one of the statuses, in the order of the statuses.
func Having(results []Result, statuses ...Status) (all []Result) {
	for _, status := range statuses {
		for _, r := range results {
			if r.Status == status {
				all = append(all, r)
			}
		}
	}
	return all
}

// Sentence returns the number of passed rules and the reasons for untested ones, such as "6 rules passed, 10 not tested: no webhooks.".
func Sentence(results []Result) string {
	text := plural(len(Having(results, OK)), "rule") + " passed"
	if untested := len(Having(results, NotTested)); untested > 0 {
		text += fmt.Sprintf(", %d not tested: %s", untested, strings.Join(reasons(results), ", "))
	}
	return text + "."
}

// Headline returns the conclusion with the number of errors and warnings, such as "FAILED: 1 error, 4 warnings". The headline also says
// whether the client can create duplicates.
func Headline(c Conclusion, results []Result) string {
	if c == NothingJudged {
		return c.Words()
	}
	text, fails := "", Having(results, Fail)
	if len(fails) > 0 {
		text = plural(len(fails), "error")
	}
	if warns := len(Having(results, Warn)); warns > 0 {
		text += either(text == "", "", ", ") + plural(warns, "warning")
	}
	if slices.ContainsFunc(fails, func(r Result) bool { return r.Rule == "no-duplicates" }) {
		text = "Your client can create duplicates: " + text
	}
	return c.Words() + ": " + cmp.Or(text, "no errors, no warnings")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
