package verdict

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Entry is a line of a session's journal: a recorded request, or a delivery attempt.
type Entry struct {
	Number int `json:"number"` // 1-based
	Moment
	Operation string       `json:"operation,omitempty"` // name of the operation in fault rules
	Of        fault.Use    `json:"of"`
	Job       string       `json:"job,omitempty"`
	JobState  JobState     `json:"job_state,omitempty"` // empty: the request names no job
	Breaks    []string     `json:"breaks"`              // ids of rules broken by this request, or by a missing later request
	Role      Role         `json:"-"`
	Status    int          `json:"-"` // 0: no response
	Effect    fault.Effect `json:"-"`
}

// JobState is the state of a job as the client knew it before a request.
type JobState string

// The states of a job.
const (
	JobUnknown JobState = "unknown" // no response that reached the client named the job
	JobOpen    JobState = "open"    // a response named the job, and none showed it as final
	JobFinal   JobState = "final"
)

// journal holds the judged exchanges and attempts, sorted by start.
type journal struct {
	record *record
	lines  []line
	states []JobState       // by line: state of the job, as the client knew it before the request
	breaks map[int][]string // ids of broken rules, by line number
	edit   func(*Moment)    // changes each entry; may be nil
}

type line struct {
	exchange *exchange
	attempt  *Attempt
}

func (l line) start() time.Time {
	if l.exchange != nil {
		return l.exchange.Start
	}
	return l.attempt.At
}

func (l line) job() string {
	if l.attempt != nil {
		return l.attempt.JobID
	}
	return cmp.Or(l.exchange.Job, l.exchange.Made)
}

// newJournal numbers the attempts and exchanges of a record. A disturbed delivery is in r.Attempts and in r.sent, but gets only one line.
// A request that a fault adds has its own line.
func newJournal(r *record) *journal {
	j := &journal{
		record: r, breaks: map[int][]string{}, lines: make([]line, 0, len(r.Attempts)+len(r.exchanges)+len(r.sent)),
	}
	attempted := map[attempt]bool{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		attempted[attempt{a.DeliveryID, a.Number}] = true
		j.lines = append(j.lines, line{attempt: a})
	}
	for i := range r.exchanges {
		j.lines = append(j.lines, line{exchange: &r.exchanges[i]})
	}
	for i := range r.sent {
		if x := &r.sent[i]; x.extra() || !attempted[attempt{x.Delivery, x.Number}] {
			j.lines = append(j.lines, line{exchange: x})
		}
	}
	slices.SortStableFunc(j.lines, func(a, b line) int { return a.start().Compare(b.start()) })
	for i, l := range j.lines {
		if l.exchange != nil {
			l.exchange.place = i + 1
		} else {
			l.attempt.place = i + 1
		}
	}
	j.fillStates()
	return j
}

func (j *journal) fillStates() {
	known := map[string]JobState{}
	j.states = make([]JobState, len(j.lines))
	for i, l := range j.lines {
		x := l.exchange
		if job := l.job(); job != "" {
			j.states[i] = cmp.Or(known[job], JobUnknown)
		}
		if x == nil || !x.Arrived() {
			continue
		}
		for _, job := range append(slices.Clone(x.Shown), x.Made) {
			known[job] = cmp.Or(known[job], JobOpen)
		}
		for _, job := range x.Final {
			known[job] = JobFinal
		}
	}
}

func (j *journal) faulty() (n int, first, last *Moment) {
	var latest *exchange
	for _, l := range j.lines {
		x := l.exchange
		if x == nil {
			x = j.record.attempted(l.attempt)
		}
		if x.Fault == nil {
			continue
		}
		if n++; n == 1 {
			first = moment(x)
		}
		latest = x
	}
	if latest != nil {
		last = moment(latest)
	}
	return n, first, last
}

func (j *journal) note(rule string, places []int) {
	slices.Sort(places)
	for _, place := range slices.Compact(places) {
		j.breaks[place] = append(j.breaks[place], rule)
	}
}

// Journal returns all judged requests and attempts. If the verdict was read from JSON, the sequence is empty.
func (v *Verdict) Journal() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if v.journal == nil {
			return
		}
		for i, l := range v.journal.lines {
			if !yield(v.journal.entry(i+1, l)) {
				return
			}
		}
	}
}

// Edit applies f to each request in the evidence and in the journal of the verdict.
func (v *Verdict) Edit(f func(*Moment)) {
	for _, m := range []*Moment{v.First, v.Last} {
		if m != nil {
			f(m)
		}
	}
	for _, result := range v.Results {
		for _, e := range result.Evidence {
			for _, m := range []*Moment{e.Before, e.Request} {
				if m != nil {
					f(m)
				}
			}
		}
	}
	if v.journal != nil {
		v.journal.edit = f
	}
}

func (j *journal) entry(number int, l line) Entry {
	x := l.exchange
	if x == nil {
		x = j.record.attempted(l.attempt)
	}
	e := Entry{
		Number: number, Moment: *moment(x), Operation: x.Operation, Of: faultUses[x.Role], Job: l.job(),
		JobState: j.states[number-1], Breaks: append([]string{}, j.breaks[number]...),
		Role: x.Role, Status: x.Status,
	}
	if a := l.attempt; a != nil {
		if a.Status == 0 && a.Error != "" {
			e.Answer = "none: " + a.Error
		}
	}
	if x.Fault != nil {
		e.Effect = *x.Fault
	}
	if j.edit != nil {
		j.edit(&e.Moment)
	}
	return e
}
