// Package testbed stores what a test bed has besides: the moves of its clock, the rules by which requests fail, and sessions with
// the exchanges that they record.
package testbed

import (
	"context"
	"embed"
	"encoding/json"
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

//go:embed *.sql
var files embed.FS

var statement, _ = pg.Statements(files, map[string]string{"faultColumns": faultColumns, "sessionColumns": sessionColumns})

// Store stores what a test bed has.
type Store struct {
	db       *pg.DB
	counting pg.KeyedMutex[job.ID] // of clients whose requests are counted for the rules
}

// New makes a Store.
func New(db *pg.DB) *Store { return &Store{db: db} }

// faultColumns is the one column list of a rule, read by scanFault.
const faultColumns = `testbed_faults.rule_id, testbed_faults.position, testbed_faults.rule, testbed_faults.seed, testbed_faults.seen,
  testbed_faults.applied, clock_timestamp() - testbed_faults.first_at`

func scanFault(row pgx.CollectableRow) (c fault.Counted, err error) {
	var id job.ID
	err = row.Scan(&id, &c.Position, &c.Rule, &c.Seed, &c.Seen, &c.Applied, &c.Age)
	c.ID = id.String()
	return c, err
}

// uuidOf reads an id of a rule or session, which were made from one; of anything else it gives NULL.
func uuidOf(text string) pgtype.UUID {
	id, _ := job.ParseID(text)
	return pg.UUID(id)
}

// ReplaceFaults gives a client these rules instead of those that it has, all or none of them.
func (s *Store) ReplaceFaults(ctx context.Context, client job.ID, seed int64, rules []fault.Counted) error {
	texts := make([]string, len(rules))
	for i, r := range rules {
		text, err := json.Marshal(r.Rule)
		if err != nil {
			return err
		}
		texts[i] = string(text)
	}
	return s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("lockFaults"), pg.UUID(client)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement("removeFaults"), pg.UUID(client), pgtype.UUID{}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement("insertFaults"), pg.UUID(client), seed, texts,
			pg.Column(rules, func(r fault.Counted) pgtype.UUID { return uuidOf(r.ID) }))
		return err
	})
}

// RemoveFaults removes the rules of a client, or with an id that one, and gives how many there were.
func (s *Store) RemoveFaults(ctx context.Context, client, id job.ID) (int, error) {
	return s.db.Change(ctx, "testbed", statement("removeFaults"), pg.UUID(client), pg.UUID(id))
}

// Faults lists the rules of a client in their order.
func (s *Store) Faults(ctx context.Context, client job.ID) ([]fault.Counted, error) {
	return pg.Query(ctx, s.db, scanFault, statement("listFaults"), pg.UUID(client))
}

// CountFaults counts a request of a client for the rules that are about it, and gives those in their order. The requests of one
// client wait here for each other: they lock the same rows, and in the database each would wait on a connection.
func (s *Store) CountFaults(ctx context.Context, client job.ID, operation string) ([]fault.Counted, error) {
	_, unlock, err := s.counting.Lock(ctx, client)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return pg.QueryAs(ctx, s.db, "testbed", scanFault, statement("countFaults"), pg.UUID(client), operation)
}

// FaultApplied counts that a rule had its effect.
func (s *Store) FaultApplied(ctx context.Context, client job.ID, c fault.Counted) error {
	_, unlock, err := s.counting.Lock(ctx, client)
	if err != nil {
		return err
	}
	defer unlock()
	return s.db.Exec(ctx, "testbed", statement("applyFault"), pg.UUID(client), c.Position, uuidOf(c.ID))
}

// sessionColumns is the one column list of a session, read by scanSession.
const sessionColumns = `session_id, profile, seed, rules, exchanges, created_at, ended_at`

func scanSession(row pgx.CollectableRow) (s verdict.Session, err error) {
	var id job.ID
	var began time.Time
	var ended *time.Time
	err = row.Scan(&id, &s.Profile, &s.Seed, &s.Rules, &s.Recorded, &began, &ended)
	s.ID, s.CreatedAt, s.EndedAt = id.String(), fault.Time(began), fault.TimeOf(ended)
	return s, err
}

// StartSession begins a session of a client; false if it has an open one. Of those that have ended it keeps so many.
func (s *Store) StartSession(ctx context.Context, client job.ID, n verdict.Session, keep int) (began verdict.Session, ok bool, err error) {
	err = s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		began, ok, err = pg.First(pg.RowsIn(ctx, tx, scanSession, statement("startSession"),
			uuidOf(n.ID), pg.UUID(client), string(n.Profile), n.Seed, n.Rules))
		if err != nil || !ok {
			return err
		}
		_, err = tx.Exec(ctx, statement("forgetSessions"), pg.UUID(client), keep)
		return err
	})
	return began, ok, err
}

// EndSession ends a session of a client, and gives it; false if there is none. One that has ended stays as it is.
func (s *Store) EndSession(ctx context.Context, client, id job.ID) (verdict.Session, bool, error) {
	return pg.First(pg.QueryAs(ctx, s.db, "testbed", scanSession, statement("endSession"), pg.UUID(client), pg.UUID(id)))
}

// Session finds a session of a client.
func (s *Store) Session(ctx context.Context, client, id job.ID) (verdict.Session, bool, error) {
	return pg.QueryFirst(ctx, s.db, scanSession, statement("listSessions"), pg.UUID(client), pg.UUID(id), 1)
}

// Sessions lists those of a client, the latest first.
func (s *Store) Sessions(ctx context.Context, client job.ID) ([]verdict.Session, error) {
	return pg.Query(ctx, s.db, scanSession, statement("listSessions"), pg.UUID(client), pgtype.UUID{}, verdict.MaxSessions+1)
}

// Record records a request in the open session of a client, if it has one.
func (s *Store) Record(ctx context.Context, client job.ID, x *verdict.Exchange) (bool, error) {
	text, err := json.Marshal(x)
	if err != nil {
		return false, err
	}
	n, err := s.db.Change(ctx, "testbed", statement("recordExchange"), pg.UUID(client), string(text), verdict.MaxExchanges, verdict.MaxBytes)
	return n > 0, err
}

// OpenStreams counts the event streams of a session whose end is not recorded.
func (s *Store) OpenStreams(ctx context.Context, client, id job.ID) (int, error) {
	return pg.QueryValue[int](ctx, s.db, statement("openStreams"), pg.UUID(client), pg.UUID(id))
}

// exchangesAtOnce is how many recorded exchanges are read by a statement.
const exchangesAtOnce = 20_000

// logOf reads the exchanges that a session has recorded.
func (s *Store) logOf(ctx context.Context, client job.ID, session pgtype.UUID) (*verdict.Log, error) {
	log := &verdict.Log{}
	for last, read := 0, exchangesAtOnce; read == exchangesAtOnce; {
		rows, err := pg.Query(ctx, s.db, func(row pgx.CollectableRow) (none struct{}, err error) {
			var x verdict.Exchange
			if err = row.Scan(&last, &x); err == nil {
				log.Add(&x)
			}
			return none, err
		}, statement("sessionExchanges"), pg.UUID(client), session, last, exchangesAtOnce)
		if err != nil {
			return nil, err
		}
		read = len(rows)
	}
	return log, nil
}

// Recorded gives what a session has recorded, with the jobs that were made in it, the attempts to deliver
// their events, and the keys of its client that expire. Its times are real ones, as the client's waits are.
func (s *Store) Recorded(ctx context.Context, client job.ID, n verdict.Session) (verdict.Record, error) {
	r := verdict.Record{Session: n, Expiries: map[string]time.Time{}}
	moves, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[clock.Setting], statement("clockMoves"))
	if err != nil {
		return r, err
	}
	real := clock.Moves(moves).Real
	if r.Log, err = s.logOf(ctx, client, uuidOf(n.ID)); err != nil {
		return r, err
	}
	since, until := time.Time(n.CreatedAt), (*time.Time)(n.EndedAt)
	if until != nil {
		r.Session.EndedAt = new(fault.Time(real(*until)))
	}
	from := pg.FirstIDOf(since.Add(-pg.IDSkew))
	args := []any{pg.UUID(client), pg.UUID(from), since, until, verdict.MaxExchanges}
	r.Runs, err = pg.Query(ctx, s.db, func(row pgx.CollectableRow) (run verdict.Run, err error) {
		var id job.ID
		var retryable bool
		if err = pg.ScanRow(row, &id, &run.State, &run.Finished, &retryable); !run.Finished.IsZero() {
			run.Finished = real(run.Finished)
		}
		run.ID, run.Permanent = id.String(), run.State == string(job.Failed) && !retryable
		return run, err
	}, statement("sessionJobs"), args...)
	if err != nil {
		return r, err
	}
	r.Attempts, err = pg.Query(ctx, s.db, func(row pgx.CollectableRow) (a verdict.Attempt, err error) {
		var delivery, about job.ID
		var took int64
		err = row.Scan(&delivery, &about, &a.Number, &a.Event, &a.At, &took, &a.Status, &a.Error)
		a.DeliveryID, a.JobID, a.Took = testbed.IDOf(delivery), testbed.IDOf(about), time.Duration(took)*time.Millisecond
		a.At, a.GaveUp = real(a.At), a.Error == string(job.SendTimeout)
		a.Final = slices.Contains([]string{job.EventSucceeded, job.EventFailed, job.EventCanceled}, a.Event)
		return a, err
	}, statement("sessionDeliveries"), args...)
	if err != nil {
		return r, err
	}
	slices.SortStableFunc(r.Attempts, func(x, y verdict.Attempt) int { return x.At.Compare(y.At) })
	type key struct {
		ID string
		At time.Time
	}
	keys, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[key], statement("sessionKeys"), pg.UUID(client))
	for _, k := range keys {
		r.Expiries[k.ID] = real(k.At)
	}
	return r, err
}

// ExpireResult lets the result of a client's job expire now.
func (s *Store) ExpireResult(ctx context.Context, client, id job.ID) error {
	return s.db.Exec(ctx, "testbed", statement("expireResult"), pg.UUID(id), pg.UUID(client))
}
