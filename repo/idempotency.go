package repo

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/job"
)

// idempotencyWindow is how long an idempotency key holds.
const idempotencyWindow = 24 * time.Hour

// maxOnce is how many transactions of Once may be open in a process. Each holds
// a connection from its first statement to its last.
const maxOnce = 8

// onceKey names an idempotency key.
type onceKey struct {
	client     job.ID
	scope, key string
}

// Once does what a request with an idempotency key asks for, and stores the key,
// the effect and the answer in one commit: what do writes through this store with
// the context that it is given. If do fails nothing is written, and the key is
// free again.
//
// A key that is known gets its first answer: replayed is true and do was not
// called. If it stands for another request, that is an idempotency conflict.
// Requests with the same key take turns: in this process here, and between
// processes at the key's row.
//
// do may use the store from one goroutine at a time. Every row it locks stays
// locked until the commit, so it should do little.
func (s *Store) Once(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (
	answer job.Answer, replayed bool, err error,
) {
	find := func() (*job.Answer, error) { return s.findAnswer(ctx, key) }
	known, replayed, err := inTurn(ctx, s, onceKey{key.ClientID, key.Scope, key.Key}, false, find, func() (*job.Answer, error) {
		answer, err := s.doOnce(ctx, key, do)
		return &answer, err
	})
	return deref(known), replayed, err
}

// errKeyTaken: the idempotency key stands for an earlier request.
var errKeyTaken = errors.New("the idempotency key is taken")

// inTurn does what a request with an idempotency key asks for, unless find knows the answer of an earlier one. Requests with one
// key wait here for each other: in the database each would wait on a connection. looked: find knew nothing when it was asked
// before this.
func inTurn[A any](ctx context.Context, s *Store, key onceKey, looked bool, find, do func() (*A, error)) (
	answer *A, replayed bool, err error,
) {
	waited, unlock, err := s.onceKeys.lock(ctx, key)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	if waited || !looked {
		if answer, err = find(); answer != nil || err != nil {
			return answer, answer != nil, err
		}
	}
	if answer, err = do(); !errors.Is(err, errKeyTaken) {
		return answer, false, err
	}
	answer, err = find()
	if err == nil && answer == nil { // the key expired in between
		err = errKeyInFlight
	}
	return answer, answer != nil, err
}

func (s *Store) doOnce(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (job.Answer, error) {
	release, err := s.onceSlots.acquire(ctx)
	if err != nil {
		return job.Answer{}, err
	}
	defer release()
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return job.Answer{}, s.failed("idempotency", err)
	}
	shared := &sharedTx{Tx: tx}
	defer func() {
		shared.ended.Store(true)
		ending, cancel := s.bound(context.WithoutCancel(ctx))
		defer cancel()
		_ = tx.Rollback(ending) // does nothing after the commit
	}()
	within := context.WithValue(ctx, sharedTxKey{}, shared)
	n, err := s.change(within, "idempotency", statement("reserveKey"), [16]byte(key.ClientID), key.Scope, key.Key, key.Hash[:],
		idempotencyWindow)
	if err == nil && n == 0 {
		err = errKeyTaken
	}
	if err != nil {
		return job.Answer{}, err
	}
	answer, err := do(within)
	if err != nil {
		return job.Answer{}, err
	}
	if err := s.exec(within, "idempotency", statement("storeAnswer"), [16]byte(key.ClientID), key.Scope, key.Key,
		uuid(answer.Subject), answer.Status, answer.Header, answer.Body); err != nil {
		return job.Answer{}, err
	}
	ending, cancel := s.bound(ctx)
	defer cancel()
	if err := requireKeyIn(ending, tx); err != nil {
		return job.Answer{}, s.failed("idempotency", err)
	}
	return answer, s.commit(ending, tx, "idempotency")
}

// findAnswer gives what a key was answered with: nil if it is free.
func (s *Store) findAnswer(ctx context.Context, key job.RequestKey) (*job.Answer, error) {
	type known struct {
		job.Answer
		hash []byte
	}
	k, found, err := queryFirst(ctx, s, func(row pgx.CollectableRow) (k known, err error) {
		return k, scanRow(row, &k.hash, &k.Subject, &k.Status, &k.Header, &k.Body)
	}, statement("findAnswer"), [16]byte(key.ClientID), key.Scope, key.Key)
	switch {
	case err != nil || !found:
		return nil, err
	case !bytes.Equal(k.hash, key.Hash[:]):
		return nil, keyReused(key.Scope, k.Subject)
	}
	return &k.Answer, nil
}

// sharedTx is the transaction of Once.
type sharedTx struct {
	pgx.Tx
	ended atomic.Bool
}

type sharedTxKey struct{}

// onceTx gives the transaction of the Once that the context is of, nil if there
// is none or it has ended.
func onceTx(ctx context.Context) pgx.Tx {
	if tx, ok := ctx.Value(sharedTxKey{}).(*sharedTx); ok && !tx.ended.Load() {
		return tx
	}
	return nil
}

// db is the transaction of Once, or else the pool.
func (s *Store) db(ctx context.Context) conn {
	if tx := onceTx(ctx); tx != nil {
		return tx
	}
	return s.pool
}

// doAll is do for many items at once, in whatever flushes they find room. The
// error is one of all of them: within Once they share a statement.
func (b *batcher[T, R]) doAll(ctx context.Context, items []T) ([]answer[R], error) {
	if tx := onceTx(ctx); tx != nil {
		ctx, cancel := b.store.bound(ctx)
		defer cancel()
		answers, err := b.flush(ctx, tx, items)
		if err != nil {
			return nil, b.store.failed(b.name, err)
		}
		return answers, nil
	}
	answers := make([]answer[R], len(items))
	var all errgroup.Group
	all.SetLimit(maxFlushItems)
	for i, item := range items {
		all.Go(func() error {
			answers[i].value, answers[i].err = b.do(ctx, item)
			return nil
		})
	}
	return answers, all.Wait()
}
