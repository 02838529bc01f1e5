package handlers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// parameter is a query parameter.
type parameter struct {
	name   string
	valid  func(string) bool
	want   string   // what a value must be
	values []string // all there are, nil where they cannot be listed
}

// choice is a parameter that is one of the given values.
func choice[T ~string](name string, values []T) parameter {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return parameter{name, func(s string) bool { return slices.Contains(texts, s) }, decode.OneOf(values), texts}
}

// The query parameters of lists.
var (
	pageQuery = []parameter{
		{name: "limit", valid: isLimit, want: "a whole number from 1 to " + strconv.Itoa(maxLimit)},
		{name: "cursor", valid: isCursor, want: "the next_cursor of a page before, unchanged"},
	}
	createdQuery = []parameter{
		{name: "created_after", valid: isTime, want: decode.TimeForm},
		{name: "created_before", valid: isTime, want: decode.TimeForm},
	}
	listQuery = slices.Concat(pageQuery, []parameter{
		choice("state", job.States), choice("type", job.Types), choice("work_kind", job.Kinds()),
		{name: "batch_id", valid: isID, want: "the id of a batch, such as 0190a1b2-c3d4-7000-8000-000000000b01"},
	}, createdQuery)
	deliveryQuery = slices.Concat(pageQuery, []parameter{
		choice("state", deliveryStates), choice("event_name", job.SubscribableEvents),
	}, createdQuery)
)

// reportQuery chooses a report.
var reportQuery = []parameter{{name: "attempt", valid: isAttempt, want: "the number of an attempt, a whole number from 1"}}

var deliveryStates = []job.DeliveryState{job.DeliveryPending, job.DeliveryDelivered, job.DeliveryFailed}

func isAttempt(s string) bool { _, ok := parsePositive(s); return ok }
func isID(s string) bool      { _, err := job.ParseID(s); return err == nil }
func isTime(s string) bool    { _, err := job.ParseTime(s); return err == nil }

// maxCursorBytes is above the length of any cursor.
const maxCursorBytes = 128

func isCursor(s string) bool {
	_, err := cursorEncoding.DecodeString(s)
	return s != "" && len(s) <= maxCursorBytes && err == nil
}

// maxLimit is how many entries a page may have.
const maxLimit = 100

func isLimit(s string) bool {
	n, ok := parsePositive(s)
	return ok && n <= maxLimit
}

func (rt *route) queryNames() []string {
	names := make([]string, len(rt.query))
	for i, p := range rt.query {
		names[i] = p.name
	}
	return names
}

// checkQuery refuses query parameters that the route does not know, those that
// come twice, and values that are not of the right form, all at once.
func (r *call) checkQuery() error {
	if len(r.Request().URI().QueryString()) == 0 {
		return nil
	}
	args, known := r.Request().URI().QueryArgs(), "This resource has no query parameters."
	names := r.route.queryNames()
	if len(names) > 0 {
		known = "The query parameters of this resource are " + strings.Join(names, ", ") + "; each may be given once."
	}
	seen := make(map[string]bool, len(names))
	foreign := args.Len() == 0 // "?=" and the like
	var violations []job.Violation
	for name, value := range args.All() {
		name := string(name)
		i := slices.Index(names, name)
		wrong, detail := i < 0 || seen[name] || !r.route.query[i].valid(string(value)), ""
		foreign = foreign || i < 0 || seen[name]
		switch {
		case !wrong || name == "" || len(violations) == job.MaxViolations:
		case i < 0:
			detail = "This parameter is not known." + decode.DidYouMean(name, names) + " " + known
		case seen[name]:
			detail = "This parameter may be given once."
		default:
			detail = "Must be " + r.route.query[i].want + "." + decode.DidYouMean(string(value), r.route.query[i].values)
		}
		if detail != "" {
			shown := strings.ToValidUTF8(name[:min(len(name), maxNameShown)], "\uFFFD")
			violations = append(violations, job.Violation{Parameter: shown, Detail: detail})
		}
		seen[name] = true
	}
	switch {
	case len(violations) > 0:
		return job.Malformed("The query is not of the expected form.", violations...)
	case foreign:
		return job.Malformed("The query is not of the expected form. " + known)
	}
	return nil
}

// maxNameShown bounds what is shown of an unknown parameter's name, in bytes.
const maxNameShown = 64

// queryLimit gives the size of the page that is asked for.
func (r *call) queryLimit(otherwise int) int {
	if n, ok := parsePositive(r.Query("limit")); ok {
		return n
	}
	return otherwise
}

// queryTime gives a time of the query, nil if it is not there.
func (r *call) queryTime(name string) *time.Time {
	at, err := job.ParseTime(r.Query(name))
	if err != nil {
		return nil
	}
	return &at
}

// maxPositiveDigits keeps numbers within every integer type.
const maxPositiveDigits = 9

// parsePositive reads a positive integer in plain digits, such as the number of
// an attempt.
func parsePositive(s string) (int, bool) {
	if s == "" || len(s) > maxPositiveDigits || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// filters names the filters of a list, for the scope of its cursors. Values
// are of forms without separators.
func (r *call) filters() string {
	var scope strings.Builder
	for _, name := range r.route.queryNames() {
		if value := r.Query(name); value != "" && name != "limit" && name != "cursor" {
			scope.WriteString(name + "=" + value + "&")
		}
	}
	return scope.String()
}

// A cursor is a position in a list, signed together with whose list it is: any
// change of it, another client or another list make it a bad one. It is not
// secret: it holds nothing but ids.

// cursorSum is how much of the HMAC-SHA-256 a cursor carries, in bytes.
const cursorSum = 16

var cursorEncoding = base64.RawURLEncoding.Strict()

var errBadCursor = &job.Error{
	Code: job.CodeMalformed, Detail: "The cursor is not one of this list.",
	Violations: []job.Violation{{Parameter: "cursor",
		Detail: "This must be the next_cursor of the page before, unchanged and with the same filters; leave it out to start anew."}},
}

// sealCursor makes the cursor of a position in a client's list. The scope names
// the list with its filters.
func (s *Server) sealCursor(ctx context.Context, client job.ID, scope string, position []byte) (string, error) {
	sum, err := s.cursorSum(ctx, client, scope, position)
	if err != nil {
		return "", err
	}
	return cursorEncoding.EncodeToString(append(sum, position...)), nil
}

// openCursor gives the position in a cursor, which must be size bytes long.
func (s *Server) openCursor(ctx context.Context, client job.ID, scope, cursor string, size int) ([]byte, error) {
	raw, err := cursorEncoding.DecodeString(cursor)
	if err != nil || len(raw) != cursorSum+size || len(cursor) != cursorEncoding.EncodedLen(len(raw)) { // line breaks would be skipped
		return nil, errBadCursor
	}
	position := raw[cursorSum:]
	sum, err := s.cursorSum(ctx, client, scope, position)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(sum, raw[:cursorSum]) {
		return nil, errBadCursor
	}
	return position, nil
}

func (s *Server) cursorSum(ctx context.Context, client job.ID, scope string, position []byte) ([]byte, error) {
	key, err := s.deps.CursorKey(ctx)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(client[:])
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(scope)))) // so that scope and position cannot be shifted
	mac.Write([]byte(scope))
	mac.Write(position)
	return mac.Sum(nil)[:cursorSum], nil
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
	list := listView[V]{Data: make([]V, len(entries)), Page: pageView{Limit: r.queryLimit(defaultLimit)}}
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
