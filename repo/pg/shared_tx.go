package pg

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

type sharedTx struct {
	pgx.Tx
	ended atomic.Bool
}

type sharedTxKey struct{}

// Share returns the context `within`. Statements that get this context run in tx until `ended` is called.
func Share(ctx context.Context, tx pgx.Tx) (within context.Context, ended func()) {
	shared := &sharedTx{Tx: tx}
	return context.WithValue(ctx, sharedTxKey{}, shared), func() { shared.ended.Store(true) }
}

// sharedTxOf returns the transaction that Share put into the context. It returns nil if there is none or it has ended.
func sharedTxOf(ctx context.Context) pgx.Tx {
	if tx, ok := ctx.Value(sharedTxKey{}).(*sharedTx); ok && !tx.ended.Load() {
		return tx
	}
	return nil
}

// Conn returns the shared transaction (see Share), or the pool if there is none.
func (d *DB) Conn(ctx context.Context) Conn {
	if tx := sharedTxOf(ctx); tx != nil {
		return tx
	}
	return d.Pool
}
