package job

import (
	"context"
	"time"
)

// Lease is a process's request for capacity. Until the next renewal, the process may store as many jobs as granted.
type Lease struct {
	ID, Process ID
	New         bool          // the lease is not stored yet
	Limit       Load          // limit of all jobs
	Keep        Load          // capacity that may already be in use; the grant is at least this
	Stored      Load          // jobs stored under the lease that no successful request has reported
	Need        Load          // reserved capacity, plus what the largest waiting request needs
	Want        Load          // Need, plus what the process expects to store until the next renewal
	Expiry      time.Duration // time after a renewal until other processes may take the capacity
	Counted     *Counted      // new count of the jobs, if there is one
}

// Counted is a count of the stored jobs (Jobs). Reported is the sum of all reports at the start of the count. Jobs that are reported later
// are added to the count.
type Counted struct{ Jobs, Reported Load }

// Headroom is the capacity that a lease grants.
type Headroom struct {
	Granted   Load
	Processes int // number of processes with leases
}

// ErrLeaseEnded is returned for jobs under a lease that has ended, because other processes may use its capacity by now.
var ErrLeaseEnded = &Error{Code: CodeStorageUnavailable, RetryAfter: time.Second,
	Detail: "The server took too long to store the job, and the capacity reserved for it expired. Nothing was accepted. Repeat the request."}

type leaseKey struct{}

// WithLease returns a context for retries that use the capacity of a lease.
func WithLease(ctx context.Context, lease ID) context.Context {
	return context.WithValue(ctx, leaseKey{}, lease)
}

// LeaseOf returns the lease of the context, or zero if there is none.
func LeaseOf(ctx context.Context) ID {
	lease, _ := ctx.Value(leaseKey{}).(ID)
	return lease
}
