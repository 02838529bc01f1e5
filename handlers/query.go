package handlers

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

// The query parameters of lists.
var (
	correlationQuery = query.Parameter{
		Name: "correlation_id", Valid: decode.ValidCorrelation, Want: strings.TrimSuffix(decode.CorrelationForm, "."),
	}
	createdQuery = []query.Parameter{query.Time("created_after"), query.Time("created_before")}
	listQuery    = slices.Concat(query.Page, []query.Parameter{
		query.Choice("state", job.States), query.Choice("type", job.Types), query.Choice("work_kind", job.AllKinds()),
		query.ID("batch_id", "a batch"), query.ID("schedule_id", "a schedule"), correlationQuery,
	}, createdQuery)
	deliveryQuery = slices.Concat(query.Page, []query.Parameter{
		query.Choice("state", deliveryStates), query.Choice("event_name", job.SubscribableEvents),
	}, createdQuery)
)

// reportQuery chooses a report.
var reportQuery = []query.Parameter{query.Number("attempt", "the number of an attempt, a whole number from 1")}

var deliveryStates = []job.DeliveryState{job.DeliveryPending, job.DeliveryDelivered, job.DeliveryFailed}

// checkQuery refuses a query that the route does not have.
func (r *call) checkQuery() error {
	if len(r.Request().URI().QueryString()) == 0 {
		return nil
	}
	return query.Check(r.route.query, textual(r.Request().URI().QueryArgs().All()))
}

func textual(pairs iter.Seq2[[]byte, []byte]) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, value := range pairs {
			if !yield(string(name), string(value)) {
				return
			}
		}
	}
}

// queryLimit gives the size of the page that is asked for.
func (r *call) queryLimit(otherwise int) int { return query.Limit(r.Query("limit"), otherwise) }

// queryTime gives a time of the query, nil if it is not there.
func (r *call) queryTime(name string) *time.Time {
	at, err := job.ParseTime(r.Query(name))
	if err != nil {
		return nil
	}
	return &at
}

// filters names the filters of a list, for the scope of its cursors.
func (r *call) filters() string {
	return query.Scope(r.route.query, func(name string) string { return r.Query(name) })
}

// sealCursor makes the cursor of a position in a client's list.
func (s *Server) sealCursor(ctx context.Context, client job.ID, scope string, position []byte) (string, error) {
	key, err := s.deps.CursorKey(ctx)
	if err != nil {
		return "", err
	}
	return query.Seal(key, client, scope, position), nil
}

// openCursor gives the position in a cursor, which must be size bytes long.
func (s *Server) openCursor(ctx context.Context, client job.ID, scope, cursor string, size int) ([]byte, error) {
	key, err := s.deps.CursorKey(ctx)
	if err != nil {
		return nil, err
	}
	return query.Open(key, client, scope, cursor, size)
}

// cursorID gives the id in the cursor that the query has, the zero id if it has
// none.
func (s *Server) cursorID(r *call, scope string) (job.ID, error) {
	cursor := r.Query("cursor")
	if cursor == "" {
		return job.ID{}, nil
	}
	position, err := s.openCursor(r.ctx, r.caller.ClientID, scope, cursor, len(job.ID{}))
	if err != nil {
		return job.ID{}, err
	}
	return job.ID(position), nil
}

// listView is a page of a list.
type listView[T any] struct {
	Data []T      `json:"data"`
	Page pageView `json:"page"`
}

type pageView struct {
	Limit      int     `json:"limit"`
	NextCursor *string `json:"next_cursor"` // null at the end
}

// sendPage answers with a page of a list, and with the cursor of the next one.
func sendPage[T, V any](s *Server, r *call, scope string, entries []T, next job.ID, view func(T) V) error {
	list := listView[V]{Data: make([]V, len(entries)), Page: pageView{Limit: r.queryLimit(query.DefaultLimit)}}
	for i, entry := range entries {
		list.Data[i] = view(entry)
	}
	if !next.IsZero() {
		cursor, err := s.sealCursor(r.ctx, r.caller.ClientID, scope, next[:])
		if err != nil {
			return err
		}
		list.Page.NextCursor = &cursor
	}
	return r.json(fiber.StatusOK, list)
}
