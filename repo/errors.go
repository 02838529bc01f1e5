package repo

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgerun/forgerun/job"
)

// SQLSTATE codes that are treated differently.
const (
	stateDeadlock        = "40P01"
	stateSerialization   = "40001"
	stateLockTimeout     = "55P03"
	stateQueryCanceled   = "57014"
	stateReadOnly        = "25006"
	stateUniqueViolation = "23505"
	stateUndefinedTable  = "42P01"

	// constraintNotErased is what the triggers of erasures name.
	constraintNotErased = "client_not_erased"

	// Classes, the first two characters.
	classConnection = "08"
	classData       = "22"
	classIntegrity  = "23"
	classResources  = "53" // no connection, disk or memory left
	classOperator   = "57" // shutting down, crashed, starting
)

// retryAfter is the advice that goes with storage trouble.
const retryAfter = time.Second

// translate is the one place where driver errors become errors of the API.
// What the driver said stays in the cause, for the log.
func translate(err error) error {
	if err == nil || isKnown(err) {
		return err
	}
	unavailable := func(code job.Code, detail string) error {
		return &job.Error{Code: code, Detail: detail, RetryAfter: retryAfter, Cause: err}
	}
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect): // before PgError: a refused login is both
		return unavailable(job.CodeStorageUnavailable, "The database cannot be reached.")
	case errors.As(err, &pg) && pg.ConstraintName == constraintNotErased:
		return errErased
	case errors.As(err, &pg):
		return translateState(pg.Code, err, unavailable)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable(job.CodeDBError, "The database did not answer in time.")
	case isConnectionLoss(err):
		return unavailable(job.CodeStorageUnavailable, "The connection to the database was lost.")
	}
	return unavailable(job.CodeDBError, "The database operation failed.")
}

// isKnown reports whether err says something of the domain already.
func isKnown(err error) bool {
	var known *job.Error
	return errors.As(err, &known) || errors.Is(err, job.ErrStale) || errors.Is(err, job.ErrWorkerDead) || errors.Is(err, errKeyTaken)
}

// translateState is translate for what the server itself reported.
func translateState(code string, err error, unavailable func(job.Code, string) error) error {
	switch {
	case code == stateUniqueViolation:
		return &job.Error{Code: job.CodeConflict, Detail: "The resource exists already.", Cause: err}
	case code == stateQueryCanceled || code == stateLockTimeout:
		return unavailable(job.CodeDBError, "The database did not answer in time.")
	case code == stateReadOnly:
		return unavailable(job.CodeStorageUnavailable, "The database accepts no writes at the moment.")
	case inClass(code, classData, classIntegrity):
		return &job.Error{Code: job.CodeInternal, Detail: "The data could not be stored.", Cause: err}
	case inClass(code, classConnection, classResources, classOperator):
		return unavailable(job.CodeStorageUnavailable, "The database is out of service at the moment.")
	}
	return unavailable(job.CodeDBError, "The database refused the operation.")
}

// isConnectionLoss reports whether the connection broke. The driver passes on
// whatever the socket said, or says itself that nothing was sent.
func isConnectionLoss(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

func hasState(err error, states ...string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains(states, pg.Code)
}

func inClass(code string, classes ...string) bool {
	return slices.ContainsFunc(classes, func(class string) bool { return strings.HasPrefix(code, class) })
}

// isRowsFault reports whether one row of a batch can be to blame, so that
// splitting the batch helps: bad data, a broken constraint, a blocked row.
func isRowsFault(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (inClass(pg.Code, classData, classIntegrity) || pg.Code == stateLockTimeout)
}
