// Package work executes jobs of the synthetic work kinds. It waits, uses CPU or memory, writes files or produces output, and returns the
// result body. It may panic; the caller must recover.
package work

import (
	"context"
	"math"
	"runtime"
	"time"

	"github.com/forgerun/forgerun/job"
)

// DefaultMaxMemory is the default memory limit of all runs together: 64 MiB.
const DefaultMaxMemory = job.MaxBehaviorMemory

// An attempt has `steps` steps, or `instantSteps` if it takes no time. A CUSTOM job chooses its own number. Each step begins with a
// progress report.
const (
	steps        = 10
	instantSteps = 2
)

// Config configures a Runner.
type Config struct {
	TimeScale float64       // multiplies every duration; 0: work takes no time
	Limit     time.Duration // execution limit; TimeScale is not applied to it
	TempDir   string        // for IO_HEAVY and CUSTOM; "": the system's temporary folder
	MaxMemory int           // limit in bytes, shared by all runs of MEMORY_SPIKE and CUSTOM; 0 means DefaultMaxMemory
}

// Runner runs work. It is safe for concurrent use and starts no goroutines.
type Runner struct {
	scale   float64
	limit   time.Duration
	tempDir string
	// The capacity of this channel limits concurrent hashing to half of the CPUs. Heartbeats and cancels need the other CPUs.
	turns chan struct{}
	// memory contains a token for each memoryUnit in use.
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

// Failure is the error of an attempt that fails on purpose, because of the work kind or a planned failure.
type Failure struct {
	Reason job.Reason
}

// Error names the reason, for logs.
func (f *Failure) Error() string { return "work failed: " + string(f.Reason) }

// FailureReason returns the reason, for callers that do not import this package.
func (f *Failure) FailureReason() job.Reason { return f.Reason }

// Run does the work of one attempt and returns the result body. Attempts are numbered from 1.
//
// Progress starts at 0 % and never decreases. 100 % is reported last, and only on success.
//
// Run returns a *Failure if the attempt has to fail. It returns context.Cause(ctx) soon after ctx ends. If d is invalid, Run does nothing
// and the error wraps job.ErrBadDefinition. If this machine lacks a resource, the error wraps job.ErrExhausted.
func (r *Runner) Run(ctx context.Context, d job.Definition, attempt int, on job.Observer) (*job.Result, error) {
	if err := d.Validate(); err != nil {
		return nil, err
	}
	a := r.newAttempt(d, attempt, on)
	defer a.release()
	if err := a.run(ctx); err != nil {
		return nil, err
	}
	reason, fails := d.WorkKind.FailsOn(attempt)
	if a.Failure != nil {
		reason, fails = job.CustomFailed, true
	}
	if fails {
		return nil, &Failure{Reason: reason}
	}
	result := resultFor(d)
	a.report(a.steps)
	return result, nil
}

// Probe checks whether a kind can run on this machine now. For kinds that write files, it writes a test file. For other kinds it does
// nothing.
func (r *Runner) Probe(ctx context.Context, kind job.Kind) error {
	if kind != job.IOHeavy && kind != job.Custom {
		return nil
	}
	f := tempFile{dir: r.tempDir}
	defer f.release()
	for n := range fileBlocks {
		if err := f.write(n); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// duration returns the scaled duration of an attempt. For RUNS_OVER_TIMEOUT, it is above the limit at any scale.
func (r *Runner) duration(d job.Definition) time.Duration {
	scaled := r.scaled(time.Duration(d.DurationMS) * time.Millisecond)
	if d.WorkKind == job.RunsOverTimeout {
		return max(scaled, r.limit+time.Second)
	}
	return scaled
}

func (r *Runner) scaled(d time.Duration) time.Duration {
	return time.Duration(min(float64(d)*r.scale, math.MaxInt64/2))
}
