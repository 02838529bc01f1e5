package jobs

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxHandOverWait is how long the jobs of an ended flush wait for an earlier flush to end. After this time the relay enqueues the jobs
// anyway, in any order, so a longer wait is useless.
const maxHandOverWait = time.Second

// order numbers the flushes of new jobs in this process (API contract, section 12). Jobs of a flush with a higher number have a later
// created_at. Handing over a flush means calling Submission.Committed for its jobs. Flushes are handed over in the order of their numbers.
// A flush waits at most maxHandOverWait for earlier flushes.
type order struct {
	clock   serverClock
	service func(time.Time) time.Time // converts Postgres' time to the service's time
	late    prometheus.Counter        // jobs handed over after younger jobs

	wait   time.Duration // maxHandOverWait, except in tests
	asking sync.Mutex    // held while Postgres is asked for its time

	mu      sync.Mutex
	taken   int64               // number of the latest flush
	last    time.Time           // latest created_at
	next    int64               // number of the flush that is handed over next
	ended   map[int64]*handOver // flushes that ended before an earlier flush ended
	handing bool                // handOverAll is running
}

type place struct {
	number int64
	first  time.Time // created_at of the flush's first job; zero if Postgres assigns the times
}

func (p place) at(i int) time.Time {
	if p.first.IsZero() {
		return p.first
	}
	return p.first.Add(time.Duration(i) * time.Microsecond)
}

type handOver struct {
	run   func()
	limit *time.Timer // ends the wait for earlier flushes
}

func newOrder(late prometheus.Counter) *order {
	return &order{
		service: func(t time.Time) time.Time { return t }, late: late, wait: maxHandOverWait, next: 1, ended: map[int64]*handOver{},
	}
}

// take assigns the next place to a flush of n jobs: the number of the flush and the created_at of its first job. If a created_at is ahead
// of Postgres' clock, insertJobs stores Postgres' time instead.
func (o *order) take(n int) place {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.taken++
	now, known := o.clock.now()
	if !known {
		return place{number: o.taken}
	}
	now = o.service(now)
	length := time.Duration(n-1) * time.Microsecond
	first := now.Add(-length).Truncate(time.Microsecond)
	if !first.After(o.last) {
		first = o.last.Add(time.Microsecond)
	}
	o.last = first.Add(length)
	return place{o.taken, first}
}

// stored updates the clock after a flush. `wanted` is the greatest created_at that the flush asked for, and `got` the greatest that was
// stored. `server` is Postgres' time during the flush's statement.
func (o *order) stored(wanted, got, server time.Time) {
	setBack := o.service(server).Before(wanted)
	o.clock.observe(server, time.Now(), setBack)
	o.mu.Lock()
	defer o.mu.Unlock()
	if setBack { // otherwise created_at would stay ahead of Postgres' clock
		o.last = time.Time{}
	}
	if got.After(o.last) {
		o.last = got
	}
}

// end is called when a flush has ended. It calls `run` to hand over the flush, at once or after the earlier flushes. `run` must not block.
// A nil `run` means that nothing was committed.
func (o *order) end(p place, jobs int, run func()) {
	o.mu.Lock()
	if p.number < o.next { // a later flush was already handed over
		o.mu.Unlock()
		if run != nil {
			o.late.Add(float64(jobs))
			run()
		}
		return
	}
	h := &handOver{run: run}
	o.ended[p.number] = h
	if p.number > o.next {
		h.limit = time.AfterFunc(o.wait, func() { o.skipTo(p.number) })
	}
	o.handOverAll()
	o.mu.Unlock()
}

func (o *order) skipTo(number int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.next = max(o.next, number)
	o.handOverAll()
}

// handOverAll runs the hand-overs that are next in order, one after the other. It releases o.mu while a hand-over runs. If another call of
// handOverAll is running, that call does the work.
func (o *order) handOverAll() {
	for !o.handing {
		h := o.ended[o.next]
		if h == nil {
			return
		}
		delete(o.ended, o.next)
		o.next++
		if h.limit != nil {
			h.limit.Stop()
		}
		if h.run == nil {
			continue
		}
		o.handing = true
		o.mu.Unlock()
		h.run()
		o.mu.Lock()
		o.handing = false
	}
}
