package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	want := map[error]job.Code{
		context.DeadlineExceeded: job.CodeDBError,
		context.Canceled:         job.CodeDBError,
		io.EOF:                   job.CodeStorageUnavailable,
		io.ErrUnexpectedEOF:      job.CodeStorageUnavailable,
		net.ErrClosed:            job.CodeStorageUnavailable,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}: job.CodeStorageUnavailable,
		&pgconn.ConnectError{}:   job.CodeStorageUnavailable,
		errors.New("unheard of"): job.CodeDBError,
	}
	for code, states := range map[job.Code][]string{
		job.CodeConflict: {"23505"}, // unique violation
		job.CodeInternal: {"23514", "23502", "22021", // check and not null violation, invalid encoding
			"42P01", "42883", "42501", "3F000"}, // no such table or function, no privilege, no such schema
		job.CodeDBError: {"57014", "55P03", "40P01", "XX000"}, // timeouts, deadlock, internal error
		job.CodeStorageUnavailable: {
			"25006", "53100", "53300", // read-only, disk full, too many connections
			"57P01", "57P02", "57P03", "08006", // administrator's shutdown, crash, starting up, connection failure
		},
	} {
		for _, state := range states {
			want[pgError(state)] = code
			want[fmt.Errorf("wrapped: %w", pgError(state))] = code
		}
	}
	for cause, code := range want {
		err := Translate(cause)
		require.Equal(t, code, job.CodeOf(err), "%v", cause)
		require.ErrorIs(t, err, cause, "the cause stays available for the log")
		var e *job.Error
		require.ErrorAs(t, err, &e)
		require.NotContains(t, e.Detail, "pg", "the detail has no internals")
		if e.Code.Spec().Status == 503 {
			require.Equal(t, RetryAfter, e.RetryAfter)
		}
	}
}

func TestTranslateKeepsKnownErrors(t *testing.T) {
	t.Parallel()
	require.NoError(t, Translate(nil))
	for _, err := range []error{job.ErrStale, job.ErrWorkerDead, errFull, fmt.Errorf("wrapped: %w", ErrErased)} {
		require.Same(t, err, Translate(err))
	}
}

func closedPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	pool.Close()
	return pool
}

func pgError(code string) error { return &pgconn.PgError{Code: code} }

func TestBatcherFailsTogetherIfNoItemIsBad(t *testing.T) {
	g, b := gated(t)
	b.flush = func(_ context.Context, _ Conn, items []string) ([]Answer[string], error) {
		_, _ = g.flush(items)
		if len(items) > 1 {
			return nil, pgError("25006")
		}
		return echo(items)
	}
	occupied := g.occupy(t.Context(), b)
	first, second := call(t.Context(), b, "a"), call(t.Context(), b, "b")
	b.awaitQueued(t, 2)
	b.db.Pool = closedPool(t)
	close(g.open)
	requireAnswers(t, occupied...)
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf((<-first).Err))
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf((<-second).Err))
}

func TestBatcherRepeatsAfterADeadlock(t *testing.T) {
	t.Parallel()
	for _, code := range []string{stateDeadlock, stateSerialization} {
		tries := 0
		b := testBatcher(t, func(items []string) ([]Answer[string], error) {
			if tries++; tries < deadlockTries {
				return nil, pgError(code)
			}
			return echo(items)
		})
		v, err := b.Do(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "a", v)

		lost := testBatcher(t, func([]string) ([]Answer[string], error) { return nil, pgError(code) })
		_, err = lost.Do(t.Context(), "a")
		require.Equal(t, job.CodeDBError, job.CodeOf(err))
	}
}
