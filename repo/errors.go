package repo

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgerun/forgerun/job"
)

// SQLSTATE codes that are told apart.
const (
	stateDeadlock        = "40P01"
	stateSerialization   = "40001"
	stateLockTimeout     = "55P03"
	stateQueryCanceled   = "57014"
	stateReadOnly        = "25006"
	stateUniqueViolation = "23505"
)

// retryAfter is the advice that goes with storage trouble.
const retryAfter = time.Second

// translate is the one place where driver errors become errors of the API.
// What the driver said stays in the cause, for the log.
func translate(err error) error {
	if err == nil {
		return nil
	}
	var known *job.Error
	if errors.As(err, &known) || errors.Is(err, job.ErrStale) || errors.Is(err, job.ErrWorkerDead) {
		return err
	}
	unavailable := func(code job.Code, detail string) error {
		return &job.Error{Code: code, Detail: detail, RetryAfter: retryAfter, Cause: err}
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch {
		case pg.Code == stateUniqueViolation:
			return &job.Error{Code: job.CodeConflict, Detail: "The resource exists already.", Cause: err}
		case pg.Code == stateQueryCanceled || pg.Code == stateLockTimeout:
			return unavailable(job.CodeDBError, "The database did not answer in time.")
		case pg.Code == stateReadOnly:
			return unavailable(job.CodeStorageUnavailable, "The database accepts no writes at the moment.")
		case pg.Code[:2] == "22" || pg.Code[:2] == "23":
			return &job.Error{Code: job.CodeInternal, Detail: "The data could not be stored.", Cause: err}
		}
		return unavailable(job.CodeDBError, "The database refused the operation.")
	}
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &connect):
		return unavailable(job.CodeStorageUnavailable, "The database cannot be reached.")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable(job.CodeDBError, "The database did not answer in time.")
	case errors.As(err, &network), pgconn.SafeToRetry(err):
		return unavailable(job.CodeStorageUnavailable, "The connection to the database was lost.")
	}
	return unavailable(job.CodeDBError, "The database operation failed.")
}

func hasState(err error, states ...string) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return false
	}
	for _, s := range states {
		if pg.Code == s {
			return true
		}
	}
	return false
}

func isReadOnly(err error) bool { return hasState(err, stateReadOnly) }

// isRowsFault reports whether one row of a batch can be to blame, so that
// splitting the batch helps: bad data, a broken constraint, a blocked row.
func isRowsFault(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code[:2] == "22" || pg.Code[:2] == "23" || pg.Code == stateLockTimeout)
}
