package main

import (
	"context"
	"fmt"
	"time"
)

// options of a run.
type options struct {
	kind     kind
	duration time.Duration // of each phase
	rounds   int           // how often a comparison is made; medians of the rounds' ratios count
	clients  int           // concurrent HTTP clients
	slots    int           // jobs at once in a worker process
	env      []string      // of the programs, on top
	program  string        // the service; "": as it is
	traced   bool          // observability: also with each request traced
	watched  bool          // generator: also read every event of each job
}

// lab is what the experiments share: temporary servers, and the rates measured
// so far.
type lab struct {
	*stack
	o options

	maxAccepted float64 // per second, workers stopped; 0: not measured yet
	maxFinished float64 // per second, sustained; 0: not measured yet
}

// say reports progress.
func (l *lab) say(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

// capacity makes sure that the maximum rates are known: it measures them briefly
// unless an experiment before has done so.
func (l *lab) capacity(ctx context.Context) error {
	if l.maxAccepted > 0 && l.maxFinished > 0 {
		return nil
	}
	o := l.o
	o.duration = min(o.duration, 4*time.Second)
	m, err := l.measure(ctx, o, l.startForgeRun)
	if err != nil {
		return err
	}
	l.say("maximum rates: %s", m)
	l.maxAccepted, l.maxFinished = m.accepted.rate(), m.path.finished
	return nil
}
