package repo

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

var (
	removeFaults = statement("removeFaults")
	insertFaults = statement("insertFaults")
	lockFaults   = statement("lockFaults")
	listFaults   = statement("listFaults")
	countFaults  = statement("countFaults")
	applyFault   = statement("applyFault")
)

// faultColumns is the one column list of a rule, read by scanFault.
const faultColumns = `testbed_faults.rule_id, testbed_faults.position, testbed_faults.rule, testbed_faults.seed, testbed_faults.seen,
  testbed_faults.applied, clock_timestamp() - testbed_faults.first_at`

func scanFault(row pgx.CollectableRow) (c fault.Counted, err error) {
	var rule []byte
	var id job.ID
	if err := row.Scan(scanID(&id), &c.Position, &rule, &c.Seed, &c.Seen, &c.Applied, &c.Age); err != nil {
		return c, err
	}
	c.ID = id.String()
	return c, json.Unmarshal(rule, &c.Rule)
}

// uuidOf reads an id of a rule or session, which were made from one; of anything else it gives NULL.
func uuidOf(text string) pgtype.UUID {
	id, _ := job.ParseID(text)
	return uuid(id)
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
	return s.inTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockFaults, uuid(client)); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, removeFaults, uuid(client), pgtype.UUID{}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, insertFaults, uuid(client), seed, texts, column(rules, func(r fault.Counted) pgtype.UUID { return uuidOf(r.ID) }))
		return err
	})
}

// RemoveFaults removes the rules of a client, or with an id that one, and gives how many there were.
func (s *Store) RemoveFaults(ctx context.Context, client, id job.ID) (int, error) {
	removed, err := queryRowsAs(ctx, s, "testbed", rowToID, removeFaults, uuid(client), uuid(id))
	return len(removed), err
}

// Faults lists the rules of a client in their order.
func (s *Store) Faults(ctx context.Context, client job.ID) ([]fault.Counted, error) {
	return queryRows(ctx, s, scanFault, listFaults, uuid(client))
}

// CountFaults counts a request of a client for the rules that are about it, and gives those in their order. The requests of one
// client wait here for each other: they lock the same rows, and in the database each would wait on a connection.
func (s *Store) CountFaults(ctx context.Context, client job.ID, operation string) ([]fault.Counted, error) {
	_, unlock, err := s.counting.lock(ctx, client)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return queryRowsAs(ctx, s, "testbed", scanFault, countFaults, uuid(client), operation)
}

// FaultApplied counts that a rule had its effect.
func (s *Store) FaultApplied(ctx context.Context, client job.ID, c fault.Counted) error {
	_, unlock, err := s.counting.lock(ctx, client)
	if err != nil {
		return err
	}
	defer unlock()
	_, err = queryRowsAs(ctx, s, "testbed", rowToID, applyFault, uuid(client), c.Position, uuidOf(c.ID))
	return err
}
