package jobs

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

const idempotencyWindow = 24 * time.Hour

// maxOnce is how many transactions of Once may be open in a process. Each holds
// a connection from its first statement to its last.
const maxOnce = 8

type onceKey struct {
	client     job.ID
	scope, key string
}

// Once runs the request of an idempotency key, and stores the key, the effect and the answer in one commit. `do` must write through this
// store, with the context that it gets. If `do` fails, nothing is written and the key is free again.
//
// For a known key, Once returns the stored answer without calling `do`, and `replayed` is true. If the key was used for another request,
// Once returns an idempotency conflict. Requests with the same key run one after the other, also in different processes, because each
// request locks the key's row.
//
// `do` may use the store from one goroutine at a time. Rows that `do` locks stay locked until the commit, so `do` should be quick.
func (s *Store) Once(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (
	answer job.Answer, replayed bool, err error,
) {
	find := func() (*job.Answer, error) { return s.findAnswer(ctx, key) }
	known, replayed, err := oncePerKey(ctx, s, onceKey{key.ClientID, key.Scope, key.Key}, false, find, func() (*job.Answer, error) {
		answer, err := s.doOnce(ctx, key, do)
		return &answer, err
	})
	return pg.Deref(known), replayed, err
}

// oncePerKey runs the request of an idempotency key, unless `find` returns the stored answer. Requests with the same key wait for each
// other in this process, because a wait in the database would hold a connection. `looked` is true if the caller has just called `find` and
// found nothing.
func oncePerKey[A any](ctx context.Context, s *Store, key onceKey, looked bool, find, do func() (*A, error)) (
	answer *A, replayed bool, err error,
) {
	waited, unlock, err := s.onceKeys.Lock(ctx, key)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	if waited || !looked {
		if answer, err = find(); answer != nil || err != nil {
			return answer, answer != nil, err
		}
	}
	if answer, err = do(); !errors.Is(err, pg.ErrKeyTaken) {
		return answer, false, err
	}
	answer, err = find()
	if err == nil && answer == nil { // the key expired after `do` found it taken
		err = errKeyInFlight
	}
	return answer, answer != nil, err
}

func (s *Store) doOnce(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (job.Answer, error) {
	release, err := s.onceSlots.Acquire(ctx)
	if err != nil {
		return job.Answer{}, err
	}
	defer release()
	tx, err := s.db.Pool.Begin(ctx)
	if err != nil {
		return job.Answer{}, s.db.Failed("idempotency", err)
	}
	within, ended := pg.Share(ctx, tx)
	defer func() {
		ended()
		ending, cancel := s.db.Bound(context.WithoutCancel(ctx))
		defer cancel()
		_ = tx.Rollback(ending) // does nothing after the commit
	}()
	n, err := s.db.Change(within, "idempotency", statement("reserveKey"), [16]byte(key.ClientID), key.Scope, key.Key, key.Hash[:],
		idempotencyWindow)
	if err == nil && n == 0 {
		err = pg.ErrKeyTaken
	}
	if err != nil {
		return job.Answer{}, err
	}
	answer, err := do(within)
	if err != nil {
		return job.Answer{}, err
	}
	if err := s.db.Exec(within, "idempotency", statement("storeAnswer"), [16]byte(key.ClientID), key.Scope, key.Key,
		pg.UUID(answer.Subject), answer.Status, answer.Header, answer.Body); err != nil {
		return job.Answer{}, err
	}
	ending, cancel := s.db.Bound(ctx)
	defer cancel()
	return answer, s.db.Commit(ending, tx, "idempotency")
}

func (s *Store) findAnswer(ctx context.Context, key job.RequestKey) (*job.Answer, error) {
	type known struct {
		job.Answer
		hash []byte
	}
	k, found, err := pg.QueryFirst(ctx, s.db, func(row pgx.CollectableRow) (k known, err error) {
		return k, pg.ScanRow(row, &k.hash, &k.Subject, &k.Status, &k.Header, &k.Body)
	}, statement("findAnswer"), [16]byte(key.ClientID), key.Scope, key.Key)
	switch {
	case err != nil || !found:
		return nil, err
	case !bytes.Equal(k.hash, key.Hash[:]):
		return nil, keyReused(key.Scope, k.Subject)
	}
	return &k.Answer, nil
}
