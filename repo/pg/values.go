package pg

import (
	"encoding/json"

	guid "github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// UUID converts an ID for Postgres. The zero ID becomes NULL.
func UUID(id job.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: !id.IsZero()} }

type idScanner job.ID

func (s *idScanner) ScanUUID(v pgtype.UUID) error {
	*s = idScanner(v.Bytes)
	return nil
}

// idPlan wraps pgx's scan plan for targets of type *job.ID. NULL becomes the zero ID.
type idPlan struct{ next pgtype.ScanPlan }

func (p *idPlan) SetNext(next pgtype.ScanPlan) { p.next = next }

func (p *idPlan) Scan(src []byte, id any) error { return p.next.Scan(src, (*idScanner)(id.(*job.ID))) }

func planID(target any) (pgtype.WrappedScanPlanNextSetter, any, bool) {
	id, ok := target.(*job.ID)
	return &idPlan{}, (*idScanner)(id), ok
}

// ScanRow reads a row into targets. A NULL leaves its target unchanged, so the targets must have the zero value.
func ScanRow(row pgx.CollectableRow, targets ...any) error {
	for i, value := range row.RawValues() {
		if value == nil {
			targets[i] = nil
		}
	}
	return row.Scan(targets...)
}

// ScanJSON reads a row with one JSON value.
func ScanJSON[T any](row pgx.CollectableRow) (v T, err error) { return v, row.Scan(&v) }

// RowToID reads a row with one id.
func RowToID(row pgx.CollectableRow) (id job.ID, err error) { return id, row.Scan(&id) }

// KeyOf returns an id as a batcher key.
func KeyOf(id job.ID) string { return string(id[:]) }

// ByID maps values by their ids.
func ByID[T any](all []T, id func(T) job.ID) map[job.ID]T {
	found := make(map[job.ID]T, len(all))
	for _, v := range all {
		found[id(v)] = v
	}
	return found
}

// EventIDs returns n new event ids. Making the ids in Postgres would take several times as long.
func EventIDs(n int) []pgtype.UUID {
	ids := make([]pgtype.UUID, n)
	for i := range ids {
		ids[i] = pgtype.UUID{Bytes: guid.Must(guid.NewV7()), Valid: true}
	}
	return ids
}

// Column collects one value per item, for an array parameter.
func Column[T, V any](items []T, value func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// JSONColumn is like Column for jsonb. It encodes the result `v` of the function `value` for each item. If `ok` is false, the item's entry
// is NULL.
func JSONColumn[T, V any](items []T, value func(T) (v V, ok bool)) ([][]byte, error) {
	encoded := make([][]byte, len(items))
	for i, item := range items {
		v, ok := value(item)
		if !ok {
			continue
		}
		var err error
		if encoded[i], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// Nullable returns nil (NULL) for the zero value.
func Nullable[V comparable](v V) *V {
	if v == *new(V) {
		return nil
	}
	return &v
}

// Deref returns the value at p, or the zero value if p is nil (NULL).
func Deref[V any](p *V) V {
	if p == nil {
		return *new(V)
	}
	return *p
}
