// Package report measures a run of the simulator and shows it live on a terminal. At the end it writes text, JSON, JUnit XML and
// one HTML file. The verdict comes from package judge.
package report

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/internal/cli/term"
)

// Classes of responses to submissions.
const (
	Accepted   = "accepted"           // a job was created
	Replayed   = "replayed"           // the request was repeated, and the job existed already
	Planned    = "refused as planned" // refusal required by the scenario
	Refused    = "refused"            // because of overload: 429, or 503 with the code of a full queue
	Rejected   = "rejected"           // any 4xx except overload and planned refusals
	Failed     = "failed"             // any 5xx except overload
	Unanswered = "unanswered"         // no complete response arrived
)

var states = []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"}

const maxFaults = 2000 // number of faults that the report lists; later faults are only counted

// Recorder counts and measures a run. It is safe for concurrent use. A call takes about a microsecond. The memory use does not depend on
// the number of jobs.
type Recorder struct {
	clock func() time.Time

	mu     sync.Mutex // one mutex is enough, because each call locks it for about 100 ns
	now    Numbers    // Submit and Finish are not set here, only in the result of numbers()
	line   timeline
	submit latencies
	finish latencies
	stages []Stage
	share  func() float64 // returns the progress of the current stage, from 0 to 1; nil: unknown
	faults []Fault
}

// Stage is a part of the run, such as the load or the drain.
type Stage struct {
	Name string  `json:"name"`
	AtMS float64 `json:"at_ms"` // begin, in ms after the start of the run
}

// Fault is an injected fault.
type Fault struct {
	Kind       string  `json:"kind"`
	Target     string  `json:"target"`
	AtMS       float64 `json:"at_ms"` // begin, in ms after the start of the run
	DurationMS float64 `json:"duration_ms"`
	Count      int     `json:"count"` // number of affected connections; 1 for a fault that does not affect connections
}

// FaultKind has the totals of all faults of one kind.
type FaultKind struct {
	Kind       string  `json:"kind"`
	Times      int64   `json:"times"`
	Count      int64   `json:"count"` // sum of Fault.Count
	DurationMS float64 `json:"duration_ms"`
}

// Lasted returns the total duration of all faults of the kind.
func (k FaultKind) Lasted() time.Duration {
	return time.Duration(k.DurationMS * float64(time.Millisecond))
}

// NewRecorder returns a recorder with time series that begin at start.
func NewRecorder(start time.Time) *Recorder { return newRecorder(start, time.Now) }

func newRecorder(start time.Time, clock func() time.Time) *Recorder {
	r := &Recorder{
		clock: clock, line: timeline{start: start, step: firstStep}, submit: newLatencies(), finish: newLatencies(),
		now: Numbers{
			Answers:  map[string]int64{Accepted: 0, Refused: 0, Failed: 0, Unanswered: 0},
			Finished: map[string]int64{}, States: map[string]int64{}, NotAccepted: map[string]int64{},
		},
	}
	for _, state := range states {
		r.now.States[state] = 0
	}
	return r
}

// note ends the steps of the time series that are over. Then it calls `change` with the numbers, under the lock.
func (r *Recorder) note(change func(n *Numbers)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.advance(r.clock())
	change(&r.now)
}

// Sent counts the submissions of one request: n is 1, or the number of items of a batch.
func (r *Recorder) Sent(n int) {
	r.note(func(now *Numbers) { now.Arrivals += int64(n) })
}

// Answered counts the submissions of one request. `classes` has the class of each submission's response. `took` is the time since the
// planned send time, so it includes delays of the sender.
func (r *Recorder) Answered(took time.Duration, classes ...string) {
	r.note(func(now *Numbers) {
		for _, class := range classes {
			now.Answers[class]++
		}
		r.submit.add(took)
	})
}

// NotAccepted counts a submission that created no job. `code` is the response's status and error code.
func (r *Recorder) NotAccepted(code string) {
	r.note(func(now *Numbers) { now.NotAccepted[code]++ })
}

// Finished records a job's final state. `took` is the time since the planned send time of the job's submission.
func (r *Recorder) Finished(took time.Duration, state string) {
	r.note(func(now *Numbers) {
		now.Finished[state]++
		r.finish.add(took)
	})
}

// Moved records that a job changed its state. For a new job, `from` is "".
func (r *Recorder) Moved(from, to string) {
	r.note(func(now *Numbers) {
		now.States[to]++
		if from != "" {
			now.States[from]--
		}
	})
}

// Delivered counts a received webhook message. `ok` is true if the receiver returned 2xx.
func (r *Recorder) Delivered(ok bool) {
	r.note(func(now *Numbers) {
		if ok {
			now.Deliveries.Taken++
		} else {
			now.Deliveries.NotTaken++
		}
	})
}

// Workers records the current number of worker processes.
func (r *Recorder) Workers(n int) {
	r.note(func(now *Numbers) { now.Workers = int64(n) })
}

// Fault records a fault that has ended.
func (r *Recorder) Fault(kind, target string, at, until time.Time, count int) {
	r.note(func(now *Numbers) {
		now.Faults += int64(max(count, 1))
		r.faults = append(r.faults, Fault{
			Kind: kind, Target: target, AtMS: r.since(at), DurationMS: ms(max(until.Sub(at), 0)), Count: max(count, 1),
		})
	})
}

func (r *Recorder) since(at time.Time) float64 { return ms(at.Sub(r.line.start)) }

// Stage begins a stage of the run. `share` returns the stage's progress, from 0 to 1; it may be nil.
func (r *Recorder) Stage(name string, share func() float64) {
	r.note(func(*Numbers) {
		r.stages, r.share = append(r.stages, Stage{Name: name, AtMS: r.since(r.clock())}), share
	})
}

// Run returns the report data. The run must be over.
func (r *Recorder) Run() Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	r.advance(now)
	r.endStep()
	kinds := map[string]FaultKind{}
	for _, f := range r.faults {
		k := kinds[f.Kind]
		kinds[f.Kind] = FaultKind{f.Kind, k.Times + 1, k.Count + int64(f.Count), k.DurationMS + f.DurationMS}
	}
	return Run{
		Started: r.line.start, Took: max(now.Sub(r.line.start), 0), Numbers: r.numbers(),
		Series: r.line.series(), Stages: slices.Clone(r.stages), Faults: slices.Clone(r.faults[:min(len(r.faults), maxFaults)]),
		Kinds: slices.SortedFunc(maps.Values(kinds), func(a, b FaultKind) int { return strings.Compare(a.Kind, b.Kind) }),
	}
}

// The caller must hold r.mu.
func (r *Recorder) numbers() Numbers {
	n := r.now.clone()
	n.Submit, n.Finish = r.submit.sum(), r.finish.sum()
	return n
}

const (
	redrawInterval = 250 * time.Millisecond // interval on a terminal, where the line is overwritten
	lineInterval   = 5 * time.Second        // interval elsewhere, with a new line each time
	barWidth       = 20
)

// Live writes the progress of the run to w until `stop` is called. On a terminal it redraws one line, elsewhere it adds a line every 5
// seconds. Tests pass `tick` to control when Live writes.
func Live(w io.Writer, r *Recorder, tick <-chan time.Time) (stop func()) {
	terminal := term.Of(w, os.Getenv).Terminal
	status := term.NewStatus(w, terminal)
	if tick == nil {
		tick = time.Tick(map[bool]time.Duration{true: redrawInterval, false: lineInterval}[terminal])
	}
	showing, quit := context.WithCancel(context.Background())
	var loop sync.WaitGroup
	loop.Go(func() {
		for {
			select {
			case <-tick:
				line := term.Masked(r.status())
				if status.Show(line); !terminal {
					fmt.Fprintln(w, line)
				}
			case <-showing.Done():
				return
			}
		}
	})
	return func() {
		quit()
		loop.Wait()
		status.Clear()
	}
}

// status formats the current numbers. The most important numbers come first, because a narrow terminal cuts off the rest.
func (r *Recorder) status() string {
	var parts []string
	r.mu.Lock()
	n, took, share := r.numbers(), max(r.clock().Sub(r.line.start), 0), r.share
	if last := len(r.stages) - 1; last >= 0 {
		parts = append(parts, r.stages[last].Name)
	}
	r.mu.Unlock()
	if share != nil { // share may take locks itself, so r.mu is not held
		done := min(share(), 1)
		full := int(done * barWidth)
		parts = append(parts, fmt.Sprintf("[%s] %.0f%%", strings.Repeat("#", full)+strings.Repeat(".", barWidth-full), 100*done))
	}
	parts = append(parts, clockTime(took),
		fmt.Sprintf("sent %s (%s)", grouped(n.Arrivals), rate(n.Arrivals, took)),
		fmt.Sprintf("finished %s (%s)", grouped(total(n.Finished)), rate(total(n.Finished), took)))
	if n.Faults > 0 {
		parts = append(parts, "faults "+grouped(n.Faults))
	}
	if n.Workers > 0 { // 0: the simulator started no workers
		parts = append(parts, fmt.Sprintf("workers %d", n.Workers))
	}
	parts = append(parts, "submit p99 "+brief(n.Submit.P99), "finish p99 "+brief(n.Finish.P99), listed(n.Answers, Accepted))
	return strings.TrimSpace(strings.Join(parts, "  "))
}
