// Package lab is what the experiments share: temporary servers, the processes under
// test, fresh databases for them, and what all of it takes of the machine.
package lab

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/internal/stack"
)

// Options of a run.
type Options struct {
	Duration time.Duration // of each phase
	Rounds   int           // how often a comparison is made
	Rows     int           // finished jobs in the large table
	Against  string        // another program of the service that is measured in turns with this one; "": none
}

const (
	// Clients is how many submit at once.
	Clients = 64
	// Quiet is how long a system gets to come to rest.
	Quiet = 2 * time.Second

	slots = 128 // jobs at once in a worker process
)

// Warmup is how long a system is kept busy before anything is counted.
func (o Options) Warmup() time.Duration { return max(time.Second, o.Duration/4) }

// Lab has the servers and the programs under test.
type Lab struct {
	Options
	Servers  *stack.Servers
	Dir      string    // temporary
	Programs []Service // the service of this checkout, and the one that it is compared with
}

// Service is a program of the service, and how it is run.
type Service struct {
	Name, Path string
	Slots      int // jobs at once in a worker process
}

// Pause waits for a while, less if the context ends.
func Pause(ctx context.Context, d time.Duration) { stack.Sleep(ctx, d) }

// rest is how long to wait after a look at a system that took so long: what looking
// costs is not the system's.
func rest(took, atLeast time.Duration) time.Duration { return max(atLeast, 20*took) }
