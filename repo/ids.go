package repo

import (
	guid "github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

type pgxConfig = pgconn.Config

// uuid passes an ID to Postgres; the zero ID is NULL.
func uuid(id job.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: !id.IsZero()} }

// idScanner reads a uuid column into an ID; NULL is the zero ID.
type idScanner job.ID

func (s *idScanner) ScanUUID(v pgtype.UUID) error {
	*s = idScanner(v.Bytes)
	return nil
}

func scanID(id *job.ID) *idScanner { return (*idScanner)(id) }

// eventIDs makes the ids of that many events. Postgres could do it too, for
// several times the cost.
func eventIDs(n int) []pgtype.UUID {
	ids := make([]pgtype.UUID, n)
	for i := range ids {
		ids[i] = pgtype.UUID{Bytes: guid.Must(guid.NewV7()), Valid: true}
	}
	return ids
}

// column turns one member of each item into an array argument for unnest.
func column[T, V any](items []T, value func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// nullable is NULL for the zero value.
func nullable[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}
