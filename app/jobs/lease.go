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
	used    job.Load  // capacity of reservations that are not reported to Postgres yet
	stored  job.Load  // part of `used` that belongs to stored jobs
	report  job.Load  // stored jobs that the next renewal reports
	demand  job.Load  // total of all reservations since the last renewal, including released ones
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

// ask returns the request for a renewal. It asks for the used capacity plus `need` plus twice the demand. Postgres always grants at least
// the request's Keep, and the process uses no more than Keep until the response arrives. So a lost request or response does no harm.
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

// end releases the capacity unless the jobs are stored. err is the error of the write, or nil. If err leaves open whether the jobs are
// stored, the capacity stays reserved until the lease expires. Within Idempotency.Once, the outcome is unknown until the commit.
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
		r.c.accepted = append(r.c.accepted, r.clientLoad) // these jobs count against the client's limit until the next count
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
