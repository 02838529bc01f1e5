package testbed

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

type recording struct {
	*Store
	client job.ID
	args   []any // arguments of statements about a session's jobs: @client, @session, @first, @since, @until, @limit
	real   func(time.Time) time.Time
}

// Recorded returns a session's exchanges, jobs, batches, bulk operations, delivery attempts and keys. All times are real times, even if
// the test bed's clock was moved, because clients wait in real time.
func (s *Store) Recorded(ctx context.Context, client job.ID, n verdict.Session) (verdict.Record, error) {
	r := verdict.Record{Session: n, Expiries: map[string]time.Time{}, Groups: map[string]time.Time{}}
	moves, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[clock.Setting], statement("clockMoves"))
	if err != nil {
		return r, err
	}
	rec := recording{Store: s, client: client, real: clock.Moves(moves).Real}
	if r.Log, err = s.logOf(ctx, client, uuidOf(n.ID)); err != nil {
		return r, err
	}
	since, until := time.Time(n.CreatedAt), (*time.Time)(n.EndedAt)
	if until != nil {
		r.Session.EndedAt = new(fault.Time(rec.real(*until)))
	}
	from := pg.FirstIDOf(since.Add(-pg.IDSkew))
	labeled := pgtype.UUID{}
	if n.Label != "" { // the created_at of a job may be up to IDSkew before the start of the job's session
		labeled, since = uuidOf(n.ID), since.Add(-pg.IDSkew)
	}
	rec.args = []any{pg.UUID(client), labeled, pg.UUID(from), since, until, verdict.MaxExchanges}
	if r.Runs, err = rec.runs(ctx, r.Groups); err != nil {
		return r, err
	}
	if err = rec.bulks(ctx, from, &r); err != nil {
		return r, err
	}
	for _, sql := range []string{statement("sessionDeliveries"), statement("sessionGroupDeliveries")} {
		attempts, err := rec.attempts(ctx, sql)
		if err != nil {
			return r, err
		}
		r.Attempts = append(r.Attempts, attempts...)
	}
	slices.SortStableFunc(r.Attempts, func(x, y verdict.Attempt) int { return x.At.Compare(y.At) })
	type key struct {
		ID string
		At time.Time
	}
	keys, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[key], statement("sessionKeys"), pg.UUID(client))
	for _, k := range keys {
		r.Expiries[k.ID] = rec.real(k.At)
	}
	return r, err
}

// runs returns the jobs of the session, and stores the end times of batches in `groups`.
func (r *recording) runs(ctx context.Context, groups map[string]time.Time) ([]verdict.Run, error) {
	return pg.Query(ctx, r.db, func(row pgx.CollectableRow) (run verdict.Run, err error) {
		var id, batch job.ID
		var retryable bool
		var completed time.Time
		if err = pg.ScanRow(row, &id, &run.State, &run.Finished, &retryable, &batch, &completed); !run.Finished.IsZero() {
			run.Finished = r.real(run.Finished)
		}
		run.ID, run.Permanent = id.String(), run.State == string(job.Failed) && !retryable
		if run.Batch = testbed.IDOf(batch); run.Batch != "" {
			run.Groups = []string{run.Batch}
		}
		if !completed.IsZero() {
			groups[run.Batch] = r.real(completed)
		}
		return run, err
	}, statement("sessionJobs"), r.args...)
}

// bulks adds each bulk operation to the jobs that it changed or skipped, and stores the operation's end time.
func (r *recording) bulks(ctx context.Context, from job.ID, record *verdict.Record) error {
	runs := map[job.ID]*verdict.Run{}
	for i := range record.Runs {
		id, _ := job.ParseID(record.Runs[i].ID)
		runs[id] = &record.Runs[i]
	}
	_, err := pg.Query(ctx, r.db, func(row pgx.CollectableRow) (none struct{}, err error) {
		var bulk, id job.ID
		var finished time.Time
		if err = pg.ScanRow(row, &bulk, &finished, &id); err != nil || runs[id] == nil {
			return none, err
		}
		runs[id].Groups = append(runs[id].Groups, bulk.String())
		if !finished.IsZero() {
			record.Groups[bulk.String()] = r.real(finished)
		}
		return none, nil
	}, statement("sessionBulks"), pg.UUID(r.client), pg.UUID(from), verdict.MaxExchanges)
	return err
}

func (r *recording) attempts(ctx context.Context, sql string) ([]verdict.Attempt, error) {
	return pg.Query(ctx, r.db, func(row pgx.CollectableRow) (a verdict.Attempt, err error) {
		var delivery, about job.ID
		var took int64
		err = row.Scan(&delivery, &about, &a.Number, &a.Event, &a.At, &took, &a.Status, &a.Error)
		a.DeliveryID, a.JobID, a.Took = testbed.IDOf(delivery), testbed.IDOf(about), time.Duration(took)*time.Millisecond
		a.At, a.GaveUp = r.real(a.At), a.Error == string(job.SendTimeout)
		a.Final = slices.Contains(testbed.Ends, a.Event)
		return a, err
	}, sql, r.args...)
}
