package verdict

import (
	"cmp"
	"iter"
	"slices"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Entry is a line of a session's journal: a recorded request, or a delivery attempt.
type Entry struct {
	Number int `json:"number"` // number of the entry, starting at 1
	Moment
	Operation string       `json:"operation,omitempty"` // name of the operation in fault rules
	Of        fault.Use    `json:"of"`                  // purpose of the operation
	Job       string       `json:"job,omitempty"`
	JobState  JobState     `json:"job_state,omitempty"` // empty: the request names no job
	Breaks    []string     `json:"breaks"`              // ids of broken rules; a missing later request may break a rule too
	Role      Role         `json:"-"`
	Status    int          `json:"-"` // 0: no response
	Effect    fault.Effect `json:"-"` // effect of the fault
}

// JobState is the state of a job as the client knew it before a request.
type JobState string

// The states of a job as a client knows them.
const (
	JobUnknown JobState = "unknown" // no response that arrived named the job
	JobOpen    JobState = "open"    // a response named the job, and none showed it as final
	JobFinal   JobState = "final"
)

// journal holds the judged exchanges and attempts, sorted by start.
type journal struct {
	lines  []*exchange
	states []JobState       // job state before each line
	breaks map[int][]string // ids of broken rules by place
	edit   func(*Moment)    // changes each entry; may be nil
}

// job returns the job of the exchange, or "" if there is none.
func (x *exchange) job() string { return cmp.Or(x.Job, x.Made) }

// newJournal numbers the attempts and exchanges of a record. A disturbed delivery and its attempt share a line. Additional requests of a
// fault have their own lines.
func newJournal(r *record) *journal {
	j := &journal{breaks: map[int][]string{}, lines: make([]*exchange, 0, len(r.attempts)+len(r.exchanges)+len(r.sent))}
	attempted := map[attempt]bool{}
	for i := range r.attempts {
		x := &r.attempts[i]
		attempted[attemptOf(x)] = true
		j.lines = append(j.lines, x)
	}
	r.each(func(x *exchange) { j.lines = append(j.lines, x) })
	for i := range r.sent {
		if x := &r.sent[i]; x.extra() || !attempted[attemptOf(x)] {
			j.lines = append(j.lines, x)
		}
	}
	slices.SortStableFunc(j.lines, func(x, y *exchange) int { return x.Start.Compare(y.Start) })
	for i, x := range j.lines {
		x.place = i + 1
	}
	j.know()
	return j
}

// know sets the state of the job before each line, as the client knew it.
func (j *journal) know() {
	known := map[string]JobState{}
	j.states = make([]JobState, len(j.lines))
	for i, x := range j.lines {
		if job := x.job(); job != "" {
			j.states[i] = cmp.Or(known[job], JobUnknown)
		}
		if !x.Arrived() {
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

// faulty returns the number of lines with a fault, and the first and the last of them.
func (j *journal) faulty() (n int, first, last *Moment) {
	var latest *exchange
	for _, x := range j.lines {
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

// note records that the requests at these places broke a rule.
func (j *journal) note(rule string, places []int) {
	slices.Sort(places)
	for _, place := range slices.Compact(places) {
		j.breaks[place] = append(j.breaks[place], rule)
	}
}

// Journal returns all judged requests and attempts. A decoded verdict has none.
func (v *Verdict) Journal() iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if v.journal == nil {
			return
		}
		for _, x := range v.journal.lines {
			if !yield(v.journal.entry(x)) {
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

func (j *journal) entry(x *exchange) Entry {
	e := Entry{
		Number: x.place, Moment: *moment(x), Operation: x.Operation, Of: faultUses[x.Role], Job: x.job(),
		JobState: j.states[x.place-1], Breaks: append([]string{}, j.breaks[x.place]...),
		Role: x.Role, Status: x.Status,
	}
	if a := x.attempt; a != nil && a.Status == 0 && a.Error != "" {
		e.Answer = "none: " + a.Error
	}
	if x.Fault != nil {
		e.Effect = *x.Fault
	}
	if j.edit != nil {
		j.edit(&e.Moment)
	}
	return e
}
