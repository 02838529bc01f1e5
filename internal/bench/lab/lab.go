// Package lab is what the experiments share: temporary servers, the processes under
// test, fresh databases for them, and what all of it takes of the machine.
package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/process"
)

// Options of a run.
type Options struct {
	Duration time.Duration // of each phase
	Rounds   int           // how often a comparison is made; medians of the rounds' ratios count
	Clients  int           // concurrent HTTP clients
	Slots    int           // jobs at once in a worker process
	Rows     int           // no experiment seeds more jobs; 0: as many as its target says
	Env      []string      // of the service, on top
	Program  string        // the service; "": as it is
	Picture  string        // peers: the file of a picture, "" for none
	Traced   bool          // observability: also with each request traced
	Watched  bool          // generator: also read every event of each job
}

// With adds to the environment.
func (o Options) With(env ...string) Options {
	o.Env = slices.Concat(o.Env, env)
	return o
}

// Jobs is how many jobs an experiment seeds of those that its target names.
func (o Options) Jobs(target int) int {
	if o.Rows > 0 {
		return min(o.Rows, target)
	}
	return target
}

// Lab has the servers and the program under test.
type Lab struct {
	Options     Options
	Servers     *devstack.Stack
	Dir         string  // temporary
	MaxAccepted float64 // per second, workers stopped; 0: not measured yet

	program string // path of the service
	redisDB int    // a fresh one for each database
}

// Printf reports progress.
func (l *Lab) Printf(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

// InTurns measures several sides, round after round, in an order that is reversed
// each time: a machine whose speed drifts favors none of them.
func InTurns(rounds, sides int, measure func(round, side int) error) error {
	for round := range rounds {
		for side := range sides {
			if round%2 == 1 {
				side = sides - 1 - side
			}
			if err := measure(round, side); err != nil {
				return err
			}
		}
	}
	return nil
}

// System is what is measured: an API, and workers that can be started later.
type System struct {
	loadgen.Target
	Client      uuid.UUID // the owner of the target's key
	Base        string    // of the API
	Env         []string
	API         *Program
	StartWorker func() (*Program, error)
}

// Starter starts a system on a database.
type Starter func(context.Context, *Database, Options) (System, error)

// Serve runs a system on the database while it is used, for the owner of the
// database's key, or for a new client if there is none.
func Serve(ctx context.Context, d *Database, o Options, start Starter, use func(System) error) error {
	sys, err := start(ctx, d, o)
	if d.Key != "" {
		sys.Key, sys.Client = d.Key, d.Client
	}
	if err == nil {
		err = use(sys)
	}
	return errors.Join(err, sys.API.Stop())
}

// Phase runs a system on a database of its own while it is used.
func (l *Lab) Phase(ctx context.Context, o Options, start Starter, use func(*Database, System) error) error {
	d, err := l.NewDatabase(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = l.Drop(context.WithoutCancel(ctx), d) }() // what is left goes with the servers
	return Serve(ctx, d, o, start, func(sys System) error { return use(d, sys) })
}

// WithWorkers runs so many worker processes while they are used.
func WithWorkers(sys System, n int, use func([]*Program) error) (result error) {
	var workers []*Program
	for range n {
		w, err := sys.StartWorker()
		defer func() { result = errors.Join(result, w.Stop()) }()
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	return use(workers)
}

// WithWorker runs one worker process while it is used.
func WithWorker(sys System, use func(*Program) error) error {
	return WithWorkers(sys, 1, func(workers []*Program) error { return use(workers[0]) })
}

// PollInterval is the shortest time between two looks at a state that is waited for.
const PollInterval = 20 * time.Millisecond

// ErrLate is returned when what was waited for did not come in time.
var ErrLate = errors.New("not in time")

// Pause waits for a while, less if the context ends.
func Pause(ctx context.Context, d time.Duration) { process.Sleep(ctx, d) }

// restShare is by how much a look at a system must rest longer than it took: what looking costs is not the system's.
const restShare = 20

// Poll asks until the answer is yes, for the given time at most. Asking takes at most
// a twentieth of a core.
func Poll(ctx context.Context, limit time.Duration, what string, ask func() (bool, error)) error {
	for end := time.Now().Add(limit); ; {
		asked := time.Now()
		yes, err := ask()
		if err != nil || yes {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w: %v", what, ErrLate, limit)
		}
		if !process.Sleep(ctx, max(PollInterval, restShare*time.Since(asked))) {
			return ctx.Err()
		}
	}
}
