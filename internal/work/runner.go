// Package work does what a work kind's name says while a job runs: it waits,
// uses CPU, takes memory, writes files or produces output, within bounds, and
// makes the result body. It decides nothing about jobs and stores nothing; a
// panic here is the caller's to catch.
package work

import (
	"context"
	"math"
	"runtime"
	"time"

	"github.com/forgerun/forgerun/job"
)

// DefaultMaxMemory is the most that MEMORY_SPIKE, and CUSTOM, takes unless
// configured otherwise: 64 MiB.
const DefaultMaxMemory = job.MaxBehaviorMemory

// steps is how many equal parts a run has: between them it reports progress.
// A run that takes no time makes do with fewer.
const (
	steps        = 10
	instantSteps = 2
)

// Config sets a Runner up.
type Config struct {
	TimeScale float64       // multiplies every duration; 0: work takes no time
	Limit     time.Duration // execution limit, already scaled
	TempDir   string        // for IO_HEAVY and CUSTOM; "" is the system's
	MaxMemory int           // bytes that all runs of MEMORY_SPIKE and CUSTOM hold together; 0 is DefaultMaxMemory
}

// Runner runs work. It is safe for concurrent use and starts no goroutines.
type Runner struct {
	scale   float64
	limit   time.Duration
	tempDir string
	// turns holds a token for each run that hashes at this moment. CPU_BURST jobs
	// use at most half of the CPUs, so that heartbeats and cancels are not delayed
	// however many there are.
	turns chan struct{}
	// memory holds a token for each memoryUnit that runs hold.
	memory chan struct{}
}

// New makes a Runner.
func New(cfg Config) *Runner {
	if cfg.MaxMemory == 0 {
		cfg.MaxMemory = DefaultMaxMemory
	}
	return &Runner{
		scale: cfg.TimeScale, limit: cfg.Limit, tempDir: cfg.TempDir,
		turns:  make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		memory: make(chan struct{}, cfg.MaxMemory/memoryUnit),
	}
}

// Failure is the error of an attempt that fails because the catalogue says so.
type Failure struct {
	Reason job.Reason
}

// Error names the reason, for logs.
func (f *Failure) Error() string { return "work failed: " + string(f.Reason) }

// FailureReason gives the reason, for those who do not know this package.
func (f *Failure) FailureReason() job.Reason { return f.Reason }

// Run does the work of one attempt (from 1) and gives the result body.
//
// It reports progress from 0 % on, never backwards, a dozen times at most (of
// CUSTOM, as often as its steps); 100 % comes last and only with success.
//
// Errors: *Failure when the catalogue says that this attempt fails;
// context.Cause(ctx) soon after ctx ends; one that wraps job.ErrBadDefinition,
// before anything is run, when d cannot be run; and one that wraps
// job.ErrExhausted when this machine lacks what the work needs.
func (r *Runner) Run(ctx context.Context, d job.Definition, attempt int, on job.Observer) (*job.Result, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	if d.WorkKind == job.Custom {
		return r.runCustom(ctx, d, attempt, on)
	}
	l := r.loadOf(d)
	defer l.release()
	reason, fails := d.WorkKind.FailsOn(attempt)
	p := pace{duration: r.duration(d), steps: steps, phase: l.phase(), items: d.PayloadSize / 1024, report: on.Progress, clock: clockOf(on)}
	switch {
	case d.WorkKind == job.FailImmediate:
		p.steps = 1
	case p.duration == 0:
		p.steps = instantSteps
	}
	if err := p.run(ctx, l); err != nil {
		return nil, err
	}
	if fails {
		return nil, &Failure{Reason: reason}
	}
	result := l.result(d)
	p.reportDone(p.steps)
	return result, nil
}

// Probe does a step of the kind's work, as fast as it can: an error says that the
// kind cannot be run here now.
func (r *Runner) Probe(ctx context.Context, kind job.Kind) error {
	l := r.loadOf(job.Definition{WorkKind: kind})
	defer l.release()
	until := time.Now().Add(r.limit)
	return step(ctx, l, steps, func() bool { return time.Now().Before(until) })
}

// duration is how long d takes here. RUNS_OVER_TIMEOUT outlasts the limit
// whatever the scale: that is its purpose.
func (r *Runner) duration(d job.Definition) time.Duration {
	scaled := r.scaled(time.Duration(d.DurationMS) * time.Millisecond)
	if d.WorkKind == job.RunsOverTimeout {
		return max(scaled, r.limit+time.Second)
	}
	return scaled
}

// scaled is how long what is to take d takes here.
func (r *Runner) scaled(d time.Duration) time.Duration {
	return time.Duration(min(float64(d)*r.scale, math.MaxInt64/2))
}
