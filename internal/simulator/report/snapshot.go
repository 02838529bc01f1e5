package report

import (
	"slices"
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

// Snapshot says how things stand.
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

// numbers needs the lock.
func (r *Recorder) numbers() Numbers {
	return Numbers{
		Arrivals: r.total.arrivals, Answers: counts(r.classes, r.total.answers), Finished: counts(r.finals, r.total.finished),
		States: counts(r.states, r.line.now.states), Workers: r.line.now.workers,
		Delivered: r.total.delivered, Refused: r.total.failed,
		Submit: latencyOf(r.submit), Finish: latencyOf(r.finish), Injected: r.injected,
	}
}

func counts(n names, values []int64) []Count {
	list := make([]Count, len(n.list))
	for i, name := range n.list {
		list[i] = Count{Name: name, N: valueAt(values, i)}
	}
	return list
}

// valueAt is the i-th value: those that did not come yet are 0.
func valueAt(values []int64, i int) int64 {
	if i < len(values) {
		return values[i]
	}
	return 0
}

// N gives the number of a name.
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
