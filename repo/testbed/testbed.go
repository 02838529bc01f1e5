// Package testbed stores the data of a test bed: the moves of its clock, the fault rules, and the sessions with their recorded exchanges.
package testbed

import (
	"context"
	"embed"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo/pg"
	"github.com/forgerun/forgerun/verdict/fault"
)

//go:embed *.sql
var files embed.FS

var statement = pg.Statements(files, nil)

// Store stores the data of a test bed.
type Store struct {
	db       *pg.DB
	counting pg.KeyedMutex[job.ID]
}

// New makes a Store.
func New(db *pg.DB) *Store { return &Store{db: db} }

func scanFault(row pgx.CollectableRow) (c fault.Counted, err error) { return scanFaultWith(row) }

func scanFaultWith(row pgx.CollectableRow, more ...any) (c fault.Counted, err error) {
	var id job.ID
	err = row.Scan(append([]any{&id, &c.Position, &c.Rule, &c.Seed, &c.Seen, &c.Applied, &c.Age}, more...)...)
	c.ID = id.String()
	return c, err
}

// uuidOf returns NULL if the text is no id.
func uuidOf(text string) pgtype.UUID {
	id, _ := job.ParseID(text)
	return pg.UUID(id)
}

// ReplaceFaults replaces all rules of a client's session atomically.
func (s *Store) ReplaceFaults(ctx context.Context, scope testbed.Scope, seed int64, rules []fault.Counted) error {
	texts := make([]string, len(rules))
	for i, r := range rules {
		text, err := json.Marshal(r.Rule)
		if err != nil {
			return err
		}
		texts[i] = string(text)
	}
	return s.db.InTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, statement("lockFaults"), pg.UUID(scope.Client)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement("removeFaults"), pg.UUID(scope.Client), pg.UUID(scope.Session), pgtype.UUID{}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, statement("insertFaults"), pg.UUID(scope.Client), pg.UUID(scope.Session), seed, texts,
			pg.Column(rules, func(r fault.Counted) pgtype.UUID { return uuidOf(r.ID) }))
		return err
	})
}

// RemoveFaults removes the rule with the id, or all rules of the session if the id is zero. It returns the number of removed rules.
func (s *Store) RemoveFaults(ctx context.Context, scope testbed.Scope, id job.ID) (int, error) {
	return s.db.Change(ctx, "testbed", statement("removeFaults"), pg.UUID(scope.Client), pg.UUID(scope.Session), pg.UUID(id))
}

// Faults lists the rules of a client's session in their order.
func (s *Store) Faults(ctx context.Context, scope testbed.Scope) ([]fault.Counted, error) {
	return pg.Query(ctx, s.db, scanFault, statement("listFaults"), pg.UUID(scope.Client), pg.UUID(scope.Session))
}

// CountFaults adds 1 to the counter of each rule that matches the request. It returns the counted rules in order. Concurrent calls for one
// client wait for each other in this process. If they waited for the same rows in Postgres, each call would occupy a connection.
func (s *Store) CountFaults(ctx context.Context, scope testbed.Scope, operation, subject string) ([]fault.Counted, error) {
	// The zero id means the session without a label. With NULL, the statement would look up the session of the request.
	session := pgtype.UUID{Bytes: scope.Session, Valid: true}
	_, rules, err := s.countFaults(ctx, scope.Client, session, "", operation, subject)
	return rules, err
}

// CountDelivery counts a delivery attempt like CountFaults counts a request. It also returns the session of the request that created the
// job or batch. For a rule with "same": true, the subject of a delivery is its job.
func (s *Store) CountDelivery(ctx context.Context, p *job.ClaimedDelivery) (testbed.Scope, []fault.Counted, error) {
	request := p.RequestID
	if b := p.Occurrence.Batch; b != nil {
		request = b.RequestID
	}
	return s.countFaults(ctx, p.ClientID, pgtype.UUID{}, request, fault.Delivery, testbed.IDOf(p.JobID))
}

func (s *Store) countFaults(
	ctx context.Context, client job.ID, session pgtype.UUID, request, operation, subject string,
) (scope testbed.Scope, rules []fault.Counted, err error) {
	scope.Client = client
	_, unlock, err := s.counting.Lock(ctx, client)
	if err != nil {
		return scope, nil, err
	}
	defer unlock()
	rules, err = pg.QueryAs(ctx, s.db, "testbed", func(row pgx.CollectableRow) (fault.Counted, error) {
		c, err := scanFaultWith(row, &scope.Session) // all rows belong to one session
		c.Subject = subject
		return c, err
	}, statement("countFaults"), pg.UUID(client), session, request, operation, subject)
	return scope, rules, err
}

// FaultApplied counts one application of a rule that CountFaults returned. It returns false, and counts nothing, if the rule no longer
// applies. The rule was then removed, used up, or bound to another subject.
func (s *Store) FaultApplied(ctx context.Context, scope testbed.Scope, c fault.Counted) (bool, error) {
	_, unlock, err := s.counting.Lock(ctx, scope.Client)
	if err != nil {
		return false, err
	}
	defer unlock()
	most := 0
	if c.Match.Window() {
		most = max(1, c.Match.Times)
	}
	n, err := s.db.Change(ctx, "testbed", statement("applyFault"), pg.UUID(scope.Client), pg.UUID(scope.Session), c.Position, uuidOf(c.ID),
		c.Subject, most, time.Duration(c.Match.For))
	return n > 0, err
}

// ExpireResult makes the result of a client's job expire now.
func (s *Store) ExpireResult(ctx context.Context, client, id job.ID) error {
	return s.db.Exec(ctx, "testbed", statement("expireResult"), pg.UUID(id), pg.UUID(client))
}
