package repo

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

var (
	startSession      = statement("startSession")
	forgetSessions    = statement("forgetSessions")
	endSession        = statement("endSession")
	listSessions      = statement("listSessions")
	recordExchange    = statement("recordExchange")
	sessionExchanges  = statement("sessionExchanges")
	openStreams       = statement("openStreams")
	sessionJobs       = statement("sessionJobs")
	sessionDeliveries = statement("sessionDeliveries")
	sessionKeys       = statement("sessionKeys")
)

// sessionColumns is the one column list of a session, read by scanSession.
const sessionColumns = `session_id, profile, seed, rules, exchanges, created_at, ended_at`

func scanSession(row pgx.CollectableRow) (s verdict.Session, err error) {
	var id job.ID
	var began time.Time
	var ended *time.Time
	err = row.Scan(scanID(&id), &s.Profile, &s.Seed, &s.Rules, &s.Recorded, &began, &ended)
	s.ID, s.CreatedAt, s.EndedAt = id.String(), fault.Time(began), fault.TimeOf(ended)
	return s, err
}

// StartSession begins a session of a client; false if it has an open one. Of those that have ended it keeps so many.
func (s *Store) StartSession(ctx context.Context, client job.ID, n verdict.Session, keep int) (began verdict.Session, ok bool, err error) {
	err = s.inTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, startSession, uuidOf(n.ID), uuid(client), string(n.Profile), n.Seed, n.Rules) // CollectRows returns its error
		made, err := pgx.CollectRows(rows, scanSession)
		if ok = len(made) > 0; err != nil || !ok {
			return err
		}
		began = made[0]
		_, err = tx.Exec(ctx, forgetSessions, uuid(client), keep)
		return err
	})
	return began, ok, err
}

// EndSession ends a session of a client, and gives it; false if there is none. One that has ended stays as it is.
func (s *Store) EndSession(ctx context.Context, client, id job.ID) (verdict.Session, bool, error) {
	return first(queryRowsAs(ctx, s, "testbed", scanSession, endSession, uuid(client), uuid(id)))
}

// Session finds a session of a client.
func (s *Store) Session(ctx context.Context, client, id job.ID) (verdict.Session, bool, error) {
	return first(queryRows(ctx, s, scanSession, listSessions, uuid(client), uuid(id), 1))
}

// Sessions lists those of a client, the latest first.
func (s *Store) Sessions(ctx context.Context, client job.ID) ([]verdict.Session, error) {
	return queryRows(ctx, s, scanSession, listSessions, uuid(client), pgtype.UUID{}, verdict.MaxSessions+1)
}

// Record records a request in the open session of a client, if it has one.
func (s *Store) Record(ctx context.Context, client job.ID, x *verdict.Exchange) (bool, error) {
	text, err := json.Marshal(x)
	if err != nil {
		return false, err
	}
	sessions, err := queryRowsAs(ctx, s, "testbed", rowToID, recordExchange, uuid(client), string(text), verdict.MaxExchanges,
		verdict.MaxBytes)
	return len(sessions) > 0, err
}

// OpenStreams counts the event streams of a session whose end is not recorded.
func (s *Store) OpenStreams(ctx context.Context, client, id job.ID) (int, error) {
	n, _, err := first(queryRows(ctx, s, pgx.RowTo[int], openStreams, uuid(client), uuid(id)))
	return n, err
}

// Recorded gives what a session has recorded, by the time at which it began, and the jobs that were made in it with the attempts
// to deliver their events.
func (s *Store) Recorded(ctx context.Context, client job.ID, n verdict.Session) (
	exchanges []verdict.Exchange, runs []verdict.Run, attempts []verdict.Attempt, err error,
) {
	exchanges, err = queryRows(ctx, s, func(row pgx.CollectableRow) (x verdict.Exchange, err error) {
		var text []byte
		if err := row.Scan(&text); err != nil {
			return x, err
		}
		return x, json.Unmarshal(text, &x)
	}, sessionExchanges, uuid(client), uuidOf(n.ID))
	if err != nil {
		return nil, nil, nil, err
	}
	slices.SortStableFunc(exchanges, func(x, y verdict.Exchange) int { return x.Start.Compare(y.Start) })
	since, until := time.Time(n.CreatedAt), (*time.Time)(n.EndedAt)
	from := firstIDOf(since.Add(-idSkew))
	args := []any{uuid(client), uuid(from), since, until, verdict.MaxExchanges}
	runs, err = queryRows(ctx, s, func(row pgx.CollectableRow) (r verdict.Run, err error) {
		var id job.ID
		var finished *time.Time
		var retryable *bool
		err = row.Scan(scanID(&id), &r.State, &finished, &retryable)
		r.ID, r.Finished, r.Permanent = id.String(), deref(finished), r.State == string(job.Failed) && !deref(retryable)
		return r, err
	}, sessionJobs, args...)
	if err != nil {
		return nil, nil, nil, err
	}
	attempts, err = queryRows(ctx, s, func(row pgx.CollectableRow) (a verdict.Attempt, err error) {
		var delivery, about job.ID
		var took int64
		err = row.Scan(scanID(&delivery), scanID(&about), &a.Number, &a.Event, &a.At, &took, &a.Status, &a.Error)
		a.DeliveryID, a.JobID, a.Took = testbed.IDOf(delivery), testbed.IDOf(about), time.Duration(took)*time.Millisecond
		a.GaveUp = a.Error == string(job.SendTimeout)
		a.Final = slices.Contains([]string{job.EventSucceeded, job.EventFailed, job.EventCanceled}, a.Event)
		return a, err
	}, sessionDeliveries, args...)
	slices.SortStableFunc(attempts, func(x, y verdict.Attempt) int { return x.At.Compare(y.At) })
	return exchanges, runs, attempts, err
}

// Expiries gives when the keys of a client expire that do.
func (s *Store) Expiries(ctx context.Context, client job.ID) (map[string]time.Time, error) {
	type key struct {
		id string
		at time.Time
	}
	keys, err := queryRows(ctx, s, func(row pgx.CollectableRow) (k key, err error) { return k, row.Scan(&k.id, &k.at) },
		sessionKeys, uuid(client))
	all := make(map[string]time.Time, len(keys))
	for _, k := range keys {
		all[k.id] = k.at
	}
	return all, err
}

// first gives the first of the rows; false if there is none.
func first[T any](rows []T, err error) (row T, found bool, _ error) {
	if err != nil || len(rows) == 0 {
		return row, false, err
	}
	return rows[0], true, nil
}
