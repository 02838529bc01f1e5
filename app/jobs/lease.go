package jobs

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// lease is the part of the free capacity that Postgres (table headroom_leases) has granted to this process. Capacity.mu guards it.
type lease struct {
	id      job.ID
	known   bool
	until   time.Time // end of the lease by this process' clock
	size    job.Load  // Postgres has granted at least this capacity
	used    job.Load  // reserved, not yet reported
	stored  job.Load  // jobs in `used` that are stored
	report  job.Load  // stored jobs that the next renewal reports
	demand  job.Load  // all capacity reserved since the last renewal, even if released again
	unknown int       // reservations with an unknown outcome
}

func newLease() *lease { return &lease{id: app.NewID()} }

func (l *lease) take(now time.Time, jobs job.Load) bool {
	used := l.used.Plus(jobs, 1)
	if !used.Within(l.size) || !now.Before(l.until) {
		return false
	}
	l.used, l.demand = used, l.demand.Plus(jobs, 1)
	return true
}

// ask returns the request for a renewal. It asks for the capacity in use, the capacity `need`, and twice the demand since the last renewal.
// Until the response arrives, the process uses only `Keep`: every response grants at least this. A lost request or response therefore does
// no harm.
func (l *lease) ask(need job.Load) job.Lease {
	l.used, l.size, l.report = l.used.Plus(l.stored, -1), l.size.Plus(l.stored, -1), l.report.Plus(l.stored, 1)
	want := l.used.Plus(need, 1).Plus(l.demand, 2)
	l.stored, l.demand = job.Load{}, job.Load{}
	l.size = l.size.Min(want).Max(l.used)
	return job.Lease{ID: l.id, New: !l.known, Keep: l.size, Stored: l.report, Need: l.used.Plus(need, 1), Want: want}
}

func (l *lease) granted(sent time.Time, ask job.Lease, size job.Load) {
	l.known, l.until, l.size = true, sent.Add(leaseUse), size
	l.report = l.report.Plus(ask.Stored, -1)
}

type reservation struct {
	clientLoad
	c     *Capacity
	lease *lease
}

func (r *reservation) leased() job.ID {
	if r == nil {
		return job.ID{}
	}
	return r.lease.id
}

// end releases the capacity unless the jobs are stored. err is the error of the write, or nil. If the result is unknown, the lease keeps
// the capacity until it expires. If the write is a part of Idempotency.Once, its result is known only after the commit of Once.
func (r *reservation) end(ctx context.Context, stored bool, err error) {
	if r == nil {
		return
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	switch {
	case stored && app.WithinOnce(ctx):
		r.lease.unknown++
		app.AfterCommit(ctx, func() {
			r.c.mu.Lock()
			defer r.c.mu.Unlock()
			r.lease.unknown--
			r.countStored()
		})
	case stored:
		r.countStored()
	case err == nil || notStored(err):
		r.lease.used = r.lease.used.Plus(r.jobs, -1)
		r.c.shares.add(r.client, r.jobs, -1)
	default:
		r.lease.unknown++
		r.c.accepted = append(r.c.accepted, r.clientLoad) // so that these jobs count for the client until the next count
	}
}

// Call it with Capacity.mu locked.
func (r *reservation) countStored() {
	r.lease.stored = r.lease.stored.Plus(r.jobs, 1)
	r.c.accepted = append(r.c.accepted, r.clientLoad)
}

func notStored(err error) bool {
	return errors.Is(err, job.ErrLeaseEnded) || job.CodeOf(err).Spec().Status < http.StatusInternalServerError
}
