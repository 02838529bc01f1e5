package judge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Violation is one thing that must not be, with all that is known of the job.
type Violation struct {
	Invariant string // key of Invariants
	Job       string // "" where it is about none
	Ticket    int64  // 0 where it is not known
	What      string
	History   []history.Fact // in order of time; nil when there are too many violations
}

// Write prints the violation and its history, a fact a line, without secrets.
func (v Violation) Write(w io.Writer) {
	var about []string
	if v.Job != "" {
		about = append(about, "job "+v.Job)
	}
	if v.Ticket > 0 {
		about = append(about, fmt.Sprintf("ticket %d", v.Ticket))
	}
	fmt.Fprintf(w, "%s: %s\n", v.Invariant, Printable(v.What))
	for _, line := range append([]string{strings.Join(about, ", ")}, v.Facts()...) {
		if line != "" {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
}

// Facts are those of its history, a line each, without secrets.
func (v Violation) Facts() (lines []string) {
	for _, f := range v.History {
		lines = append(lines, when(&f).UTC().Format("15:04:05.000000")+"  "+Printable(line(f)))
	}
	return lines
}

// inOrder sorts a copy of facts by the time of what they say.
func inOrder(facts []history.Fact) []history.Fact {
	sorted := slices.Clone(facts)
	slices.SortStableFunc(sorted, func(a, b history.Fact) int {
		return cmp.Or(when(&a).Compare(when(&b)), cmp.Compare(deref(a.Event).Seq, deref(b.Event).Seq))
	})
	return sorted
}

// when is the time of what a fact says: for what was stored, when it happened.
func when(f *history.Fact) time.Time {
	switch {
	case f.Kind == history.StoredEvent && f.Event != nil:
		return f.Event.At
	case f.Kind == history.StoredReport && f.Report != nil:
		return f.Report.FinishedAt
	case f.Kind == history.StoredTry && f.Delivery != nil:
		return f.Delivery.Tried
	case f.Submission != nil && len(f.Submission.Tries) > 0:
		return f.Submission.Tries[0].Sent
	case f.Action != nil:
		return f.Action.Sent
	}
	return f.At
}

// line is a fact as the history has it, without what may be secret.
func line(f history.Fact) string {
	if f.Submission != nil {
		sent := *f.Submission
		sent.Key, sent.Callback = "", RedactURL(sent.Callback)
		f.Submission = &sent
	}
	if f.Delivery != nil {
		d := *f.Delivery
		d.URL = RedactURL(d.URL)
		f.Delivery = &d
	}
	text, _ := json.Marshal(f) // it was read from JSON
	return string(text)
}

// RedactURL leaves out what may be secret in a URL.
func RedactURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(a URL)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// secrets are API keys and secrets of webhooks, wherever they stand.
var secrets = regexp.MustCompile(`\b(frk_|whsec_)[A-Za-z0-9_+/=-]+|\b(Bearer )\S+`)

// Printable replaces secrets, and characters that a terminal may act on.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, secrets.ReplaceAllString(text, "$1$2***"))
}
