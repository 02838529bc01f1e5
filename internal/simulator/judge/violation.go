package judge

import (
	"cmp"
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
	if len(about) > 0 {
		fmt.Fprintf(w, "  %s\n", strings.Join(about, ", "))
	}
	for _, f := range v.History {
		fmt.Fprintf(w, "  %s  %-15s tenant %d  %s\n", when(&f).UTC().Format("15:04:05.000000"), f.Kind, f.Tenant, Printable(describe(&f)))
	}
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

func describe(f *history.Fact) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s := f.Submission; s != nil {
		add("%s %s, execution_at %s, callback %s, batch %q", s.Type, s.WorkKind, clock(s.ExecutionAt), RedactURL(s.Callback), s.Batch)
		for _, t := range s.Tries {
			add("try %s-%s: %d %s job %s %s replayed %t %s",
				clock(&t.Sent), clock(&t.Answered), t.Status, t.Code, t.Job, t.State, t.Replayed, t.Error)
		}
	}
	if a := f.Action; a != nil {
		add("%s answered %s: %d %s %s attempt %d %s", a.Verb, clock(&f.At), a.Status, a.Code, a.State, a.Attempt, a.Error)
	}
	if j := f.Told; j != nil {
		add("%s %s %s %s attempt %d of %d, created %s, updated %s, started %s, finished %s, execution_at %s %s",
			j.Type, j.WorkKind, j.State, j.Outcome, j.Attempt, j.MaxAttempts,
			clock(&j.CreatedAt), clock(&j.UpdatedAt), clock(j.StartedAt), clock(j.FinishedAt), clock(j.ExecutionAt), j.Failure)
		if f.Kind == history.StoredJob {
			add("event_seq %d, fence %d, lease_expiries %d, result of attempt %d, %d keys, run_at %s, correlation id %s",
				j.EventSeq, j.Fence, j.LeaseExpiries, j.ResultAttempt, j.Keys, clock(j.RunAt), j.Correlation)
		}
	}
	if e := f.Event; e != nil {
		add("%d %s %s>%s attempt %d at %s %s (%s)", e.Seq, e.Name, e.Prev, e.Next, e.Attempt, clock(&e.At), e.Status+e.Emitted, e.ID)
	}
	if r := f.Report; r != nil {
		add("attempt %d %s, %s to %s, %d ms %s, %d events, event_seq %d",
			r.Attempt, r.Outcome, clock(r.StartedAt), clock(&r.FinishedAt), r.DurationMS, r.Failure, len(r.Events), r.EventSeq)
	}
	if d := f.Delivery; d != nil {
		add("%s to %s%s: event %d %s (%s) %s, attempts %d, status %d %s, bytes %s %s %s", d.ID, d.Webhook, RedactURL(d.URL),
			d.Seq, d.EventName, d.EventID, d.State, d.Attempts, d.Status, d.Error, d.Body, d.JobStatus, d.Emitted)
	}
	if t := f.Task; t != nil {
		add("queue %s: %s %s", t.Queue, t.ID, t.State)
	}
	if f.Note != "" {
		add("%s", f.Note)
	}
	return strings.Join(parts, "; ")
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
