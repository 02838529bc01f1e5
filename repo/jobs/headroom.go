package jobs

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// RenewLease reports the jobs stored under a lease and grants headroom to the lease, in one transaction. The unfinished jobs and all
// leases together never exceed the limit. RenewLease returns job.ErrLeaseEnded if the lease is no longer in the ledger. The ledger
// consists of the tables headroom and headroom_leases.
func (s *Store) RenewLease(ctx context.Context, l job.Lease) (h job.Headroom, err error) {
	granted := false
	err = s.inLedger(ctx, l, func(b *pgx.Batch) {
		b.Queue(statement("endLeases"), pg.UUID(l.ID), l.Expiry)
		b.Queue(statement("grantLease"), pg.UUID(l.ID), pg.UUID(l.Process), l.New, l.Expiry, l.Limit.Active, l.Limit.Queued,
			l.Keep.Active, l.Keep.Queued, l.Need.Active, l.Need.Queued, l.Want.Active, l.Want.Queued).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&h.Granted.Active, &h.Granted.Queued, &h.Processes)
			granted = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	})
	if err == nil && !granted {
		err = job.ErrLeaseEnded
	}
	return h, err
}

// CloseLease ends a lease if l.Keep is zero. Otherwise it reduces the lease to l.Keep until the lease expires.
func (s *Store) CloseLease(ctx context.Context, l job.Lease) error {
	return s.inLedger(ctx, l, func(b *pgx.Batch) { b.Queue(statement("closeLease"), pg.UUID(l.ID), l.Keep.Active, l.Keep.Queued) })
}

// inLedger sends reportStored and the other statements in one round trip, as one transaction. Postgres commits without another message from
// the process. So a process that hangs does not keep the ledger locked. Each statement sees everything that was committed before the lock
// was taken.
func (s *Store) inLedger(ctx context.Context, l job.Lease, queue func(*pgx.Batch)) error {
	ctx, cancel := s.db.Bound(ctx)
	defer cancel()
	var counted job.Counted
	if l.Counted != nil {
		counted = *l.Counted
	}
	var b pgx.Batch
	b.Queue(statement("reportStored"), l.Stored.Active, l.Stored.Queued, l.Counted != nil,
		counted.Jobs.Active, counted.Jobs.Queued, counted.Reported.Active, counted.Reported.Queued)
	queue(&b)
	if err := s.db.Pool.SendBatch(ctx, &b).Close(); err != nil {
		return s.db.Failed("headroom", err)
	}
	return nil
}

// requireLease needs no lock, because an ended lease never comes back.
func (s *Store) requireLease(ctx context.Context, lease job.ID) error {
	if lease.IsZero() {
		return nil
	}
	there, err := pg.QueryValue[bool](ctx, s.db, `SELECT EXISTS (SELECT FROM headroom_leases WHERE lease_id = $1)`, pg.UUID(lease))
	if err == nil && !there {
		err = job.ErrLeaseEnded
	}
	return err
}

func leaseColumn[T any](items []T, lease func(T) job.ID) []pgtype.UUID {
	return pg.Column(items, func(x T) pgtype.UUID { return pg.UUID(lease(x)) })
}
