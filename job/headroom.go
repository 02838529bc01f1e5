package job

import (
	"context"
	"time"
)

// Lease asks for headroom: the number of jobs that a process may store until it renews the lease.
type Lease struct {
	ID, Process ID
	New         bool          // not yet in the ledger
	Limit       Load          // of all jobs
	Keep        Load          // what the process may have used of the lease already; always granted
	Stored      Load          // jobs stored under the lease since they were reported last
	Need        Load          // what one waiting request takes
	Want        Load          // what the process expects to use
	Expiry      time.Duration // after which other processes may take the room
	Counted     *Counted      // a new count of the jobs; nil if there is none
}

// Counted is a count of the jobs, and what processes had reported at that moment.
type Counted struct{ Jobs, Reported Load }

// Headroom is what a lease was granted.
type Headroom struct {
	Granted   Load
	Processes int // that hold leases
}

// ErrLeaseEnded refuses jobs under a lease that is not in the ledger any more: its room was given to others.
var ErrLeaseEnded = &Error{Code: CodeStorageUnavailable, RetryAfter: time.Second,
	Detail: "The server was held up for too long to store the job within the limits. Nothing was accepted. Repeat the request."}

type leaseKey struct{}

// WithLease has retries that are stored with the context take the room of a lease.
func WithLease(ctx context.Context, lease ID) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// LeaseOf returns the lease of the context; zero if it has none.
func LeaseOf(ctx context.Context) ID {
	lease, _ := ctx.Value(leaseKey{}).(ID)
	return lease
}
