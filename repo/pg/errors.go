package pg

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

// SQLSTATE codes of Postgres.
const (
	stateDeadlock        = "40P01"
	stateSerialization   = "40001"
	StateLockTimeout     = "55P03"
	StateQueryCanceled   = "57014"
	stateReadOnly        = "25006"
	stateUniqueViolation = "23505"
	StateUndefinedTable  = "42P01"

	// The trigger function refuse_erased reports this constraint when a client was erased.
	constraintNotErased = "client_not_erased"

	// Classes are the first two characters of a code.
	classConnection = "08"
	classData       = "22"
	classIntegrity  = "23"
	ClassResources  = "53" // no connection, disk or memory left
	classOperator   = "57" // shutting down, crashed, starting
	classAccess     = "42" // no such table or function, no privilege
	classSchema     = "3F" // no such schema
)

// RetryAfter is the Retry-After of storage errors.
const RetryAfter = time.Second

// Translate turns driver errors into errors of the API.
func Translate(err error) error {
	if err == nil || IsKnown(err) {
		return err
	}
	unavailable := func(code job.Code, detail string) error {
		return &job.Error{Code: code, Detail: detail, RetryAfter: RetryAfter, Cause: err}
	}
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect): // checked first, because a refused login is also a PgError
		return unavailable(job.CodeStorageUnavailable, "The database cannot be reached.")
	case errors.As(err, &pg) && pg.ConstraintName == constraintNotErased:
		return ErrErased
	case errors.As(err, &pg):
		return translateState(pg.Code, err, unavailable)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable(job.CodeDBError, "The database did not answer in time.")
	case isConnectionLoss(err):
		return unavailable(job.CodeStorageUnavailable, "The connection to the database was lost.")
	}
	return unavailable(job.CodeDBError, "The database operation failed.")
}

// IsKnown reports whether err needs no translation, because it is already an error of the API or of the store.
func IsKnown(err error) bool {
	var known *job.Error
	return errors.As(err, &known) || errors.Is(err, job.ErrStale) || errors.Is(err, job.ErrWorkerDead) || errors.Is(err, ErrKeyTaken)
}

func translateState(code string, err error, unavailable func(job.Code, string) error) error {
	switch {
	case code == stateUniqueViolation:
		return &job.Error{Code: job.CodeConflict, Detail: "The resource exists already.", Cause: err}
	case code == StateQueryCanceled || code == StateLockTimeout:
		return unavailable(job.CodeDBError, "The database did not answer in time.")
	case code == stateReadOnly:
		return unavailable(job.CodeStorageUnavailable, "The database accepts no writes at the moment.")
	case InClass(code, classData, classIntegrity):
		return &job.Error{Code: job.CodeInternal, Detail: "The data could not be stored.", Cause: err}
	case InClass(code, classAccess, classSchema):
		return &job.Error{Code: job.CodeInternal, Cause: err,
			Detail: "The database lacks a table, a function or a privilege that this service needs."}
	case InClass(code, classConnection, ClassResources, classOperator):
		return unavailable(job.CodeStorageUnavailable, "The database is out of service at the moment.")
	}
	return unavailable(job.CodeDBError, "The database refused the operation.")
}

// isConnectionLoss reports whether the connection broke. The driver then returns a socket error or, if nothing was sent, an error that
// pgconn.SafeToRetry accepts.
func isConnectionLoss(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || pgconn.SafeToRetry(err)
}

// HasState reports whether the server returned one of these SQLSTATE codes.
func HasState(err error, states ...string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains(states, pg.Code)
}

// InClass reports whether an SQLSTATE code belongs to one of these classes.
func InClass(code string, classes ...string) bool {
	return slices.ContainsFunc(classes, func(class string) bool { return strings.HasPrefix(code, class) })
}

// isRowsFault reports whether a single row of a batch may have caused the error: bad data, a violated constraint, or a locked row. If so,
// splitting the batch separates this row from the other rows.
func isRowsFault(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (InClass(pg.Code, classData, classIntegrity) || pg.Code == StateLockTimeout)
}

// ErrErased is the error of a write for an erased client.
var ErrErased = job.Errorf(job.CodeClientNotFound, "No client with this id was found.")

// ErrKeyTaken is returned if the idempotency key was already used.
var ErrKeyTaken = errors.New("the idempotency key is taken")
