package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]job.Code{
		"23505": job.CodeConflict,           // unique violation
		"23514": job.CodeInternal,           // check violation
		"23502": job.CodeInternal,           // not null violation
		"22021": job.CodeInternal,           // invalid encoding
		"57014": job.CodeDBError,            // statement timeout
		"55P03": job.CodeDBError,            // lock timeout
		"40P01": job.CodeDBError,            // deadlock
		"42P01": job.CodeDBError,            // no such table
		"XX000": job.CodeDBError,            // internal error
		"25006": job.CodeStorageUnavailable, // read-only
		"53100": job.CodeStorageUnavailable, // disk full
		"53300": job.CodeStorageUnavailable, // too many connections
		"57P01": job.CodeStorageUnavailable, // administrator's shutdown
		"57P02": job.CodeStorageUnavailable, // crash
		"57P03": job.CodeStorageUnavailable, // starting up
		"08006": job.CodeStorageUnavailable, // connection failure
	} {
		requireTranslated(t, want, pgError(code))
		requireTranslated(t, want, fmt.Errorf("wrapped: %w", pgError(code)))
	}
	for err, want := range map[error]job.Code{
		context.DeadlineExceeded: job.CodeDBError,
		context.Canceled:         job.CodeDBError,
		io.EOF:                   job.CodeStorageUnavailable,
		io.ErrUnexpectedEOF:      job.CodeStorageUnavailable,
		net.ErrClosed:            job.CodeStorageUnavailable,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}: job.CodeStorageUnavailable,
		&pgconn.ConnectError{}:   job.CodeStorageUnavailable,
		errors.New("unheard of"): job.CodeDBError,
	} {
		requireTranslated(t, want, err)
	}
}

func requireTranslated(t *testing.T, want job.Code, cause error) {
	t.Helper()
	err := translate(cause)
	require.Equal(t, want, job.CodeOf(err), "%v", cause)
	require.ErrorIs(t, err, cause, "the log needs the cause")
	var e *job.Error
	require.ErrorAs(t, err, &e)
	require.NotContains(t, e.Detail, "pg", "a client learns nothing internal")
	if e.Code.Spec().Status == 503 {
		require.Equal(t, retryAfter, e.RetryAfter)
	}
}

func TestTranslateLeavesKnownErrorsAlone(t *testing.T) {
	t.Parallel()
	require.NoError(t, translate(nil))
	for _, err := range []error{job.ErrStale, job.ErrWorkerDead, errKeyReused, fmt.Errorf("wrapped: %w", errNotFound)} {
		require.Same(t, err, translate(err))
	}
}
