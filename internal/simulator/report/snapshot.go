package report

import (
	"slices"
	"strings"
	"time"
)

// Count is how many there are of something.
type Count struct {
	Name string
	N    int64
}

// Numbers are the totals of a run, or of what there is of it.
type Numbers struct {
	Arrivals  int64
	Answers   []Count // by class
	Finished  []Count // by final state
	States    []Count // jobs that are in a state now, as far as was seen
	Workers   int64
	Delivered int64 // webhook messages that the receiver answered with success
	Refused   int64 // and those that it did not
	Submit    Latency
	Finish    Latency
	Injected  int64 // faults: connections cut or delayed, and other disturbances
}

// Snapshot is what a live view shows.
type Snapshot struct {
	At        time.Time
	Elapsed   time.Duration
	Stage     string
	Numbers   Numbers
	LastFault Fault
}

// Snapshot gives the numbers of now.
func (r *Recorder) Snapshot() Snapshot {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Snapshot{At: now, Elapsed: max(now.Sub(r.line.start), 0), Numbers: r.numbers(), LastFault: r.lastFault}
	if n := len(r.stages); n > 0 {
		s.Stage = r.stages[n-1].Name
	}
	return s
}

// Run gives the account of what was recorded. The run is over: nothing more comes.
func (r *Recorder) Run() Run {
	now := r.clock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.line.fill(now)
	for i := r.line.open; i < len(r.line.points); i++ {
		r.line.points[i].level = r.line.now
	}
	kinds := slices.Clone(r.kinds)
	slices.SortFunc(kinds, func(a, b FaultKind) int { return strings.Compare(a.Kind, b.Kind) })
	n := r.numbers()
	n.Submit.Distribution, n.Finish.Distribution = distributionOf(r.submit), distributionOf(r.finish)
	return Run{
		Started: r.line.start, Took: max(now.Sub(r.line.start), 0), Numbers: n, Series: r.line.series(r.classes, r.finals, r.states),
		Stages: slices.Clone(r.stages), Faults: slices.Clone(r.faults), Kinds: kinds,
	}
}

// numbers needs the lock.
func (r *Recorder) numbers() Numbers {
	return Numbers{
		Arrivals: r.total[arrivals], Answers: r.classes.counts(r.total[answers:]), Finished: r.finals.counts(r.total[finished:]),
		States: r.states.counts(r.line.now[:]), Workers: r.line.now[workers],
		Delivered: r.total[taken], Refused: r.total[notTaken],
		Submit: latencyOf(r.submit), Finish: latencyOf(r.finish), Injected: r.injected,
	}
}

// number is that of a name, 0 where it is not in the list.
func number(list []Count, name string) int64 {
	if i := slices.IndexFunc(list, func(c Count) bool { return c.Name == name }); i >= 0 {
		return list[i].N
	}
	return 0
}

func total(list []Count) int64 {
	var n int64
	for _, c := range list {
		n += c.N
	}
	return n
}
