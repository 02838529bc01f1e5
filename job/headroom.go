package job

import (
	"context"
	"time"
)

// Lease is a process's request for capacity. Capacity is a number of jobs. The process stores at most the granted number of jobs before it
// renews the lease.
type Lease struct {
	ID, Process ID
	New         bool          // the lease is not stored yet
	Limit       Load          // limit for the jobs of all processes together
	Keep        Load          // capacity that may already be in use; the store grants at least Keep
	Stored      Load          // stored jobs that no earlier renewal has reported
	Need        Load          // reserved capacity, plus capacity for the largest waiting submission
	Want        Load          // Need, plus what the process expects to store until the next renewal
	Expiry      time.Duration // time after a renewal until other processes may take the capacity
	Counted     *Counted      // new count of all jobs; nil if this request contains no count
}

// Counted is the result of a count. Jobs is the number of counted jobs. Reported is the total number of jobs that all processes had
// reported when the count began. Jobs that are reported later are added to the count.
type Counted struct{ Jobs, Reported Load }

// Headroom is the capacity that a lease grants.
type Headroom struct {
	Granted   Load
	Processes int // number of processes with leases
}

// ErrLeaseEnded refuses to store jobs under an ended lease. Other processes may already use the capacity of that lease.
var ErrLeaseEnded = &Error{Code: CodeStorageUnavailable, RetryAfter: time.Second,
	Detail: "The server took too long to store the job, and the capacity reserved for it expired. Nothing was accepted. Repeat the request."}

type leaseKey struct{}

// WithLease returns a context for Store.Retry. The retry uses the capacity of the lease, and fails if the lease has ended.
func WithLease(ctx context.Context, lease ID) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// LeaseOf returns the lease of the context, or zero if there is none.
func LeaseOf(ctx context.Context) ID {
	lease, _ := ctx.Value(leaseKey{}).(ID)
	return lease
}
