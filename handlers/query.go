package handlers

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job"
)

// parameter is a query parameter.
type parameter struct {
	name  string
	valid func(string) bool
	want  string // what a value must be
}

// The query parameters of lists.
var (
	pageQuery = []parameter{
		{"limit", isLimit, "a whole number from 1 to " + strconv.Itoa(maxLimit)},
		{"cursor", isCursor, "the next_cursor of a page before, unchanged"},
	}
	createdQuery = []parameter{
		{"created_after", isTime, timeWanted},
		{"created_before", isTime, timeWanted},
	}
	listQuery = slices.Concat(pageQuery, []parameter{
		{"state", isState, "one of " + join(job.States)},
		{"type", func(s string) bool { return job.Type(s).Valid() }, "one of " + join(job.Types)},
		{"work_kind", func(s string) bool { return job.Kind(s).Valid() }, kindWanted},
		{"batch_id", isID, "the id of a batch, such as 0190a1b2-c3d4-7000-8000-000000000b01"},
	}, createdQuery)
	deliveryQuery = slices.Concat(pageQuery, []parameter{
		{"state", func(s string) bool { return job.DeliveryState(s).Valid() }, "one of " + join(deliveryStates)},
		{"event_name", func(s string) bool { return slices.Contains(job.SubscribableEvents, s) }, "one of " + join(job.SubscribableEvents)},
	}, createdQuery)
)

// reportQuery chooses a report.
var reportQuery = []parameter{{"attempt", isAttempt, "the number of an attempt, a whole number from 1"}}

var deliveryStates = []job.DeliveryState{job.DeliveryPending, job.DeliveryDelivered, job.DeliveryFailed}

// kindWanted lists the catalogue.
var kindWanted = "one of " + join(job.Kinds())

const timeWanted = "a time in RFC 3339 in UTC, such as 2030-01-31T12:00:00Z"

func isAttempt(s string) bool { _, ok := parsePositive(s); return ok }
func isState(s string) bool   { return job.State(s).Valid() }
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

func join[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
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
	add := func(name, detail string) {
		if len(violations) < job.MaxViolations && name != "" {
			violations = append(violations, job.Violation{Parameter: name, Detail: detail})
		}
	}
	for name, value := range args.All() {
		name := string(name)
		switch i := slices.Index(names, name); {
		case i < 0:
			foreign = true
			add(strings.ToValidUTF8(name[:min(len(name), maxNameShown)], "\uFFFD"), "This parameter is not known. "+known)
		case seen[name]:
			foreign = true
			add(name, "This parameter may be given once.")
		case !r.route.query[i].valid(string(value)):
			add(name, "Must be "+r.route.query[i].want+".")
		}
		seen[name] = true
	}
	if !foreign && len(violations) == 0 {
		return nil
	}
	err := job.Errorf(job.CodeMalformed, "The query is not of the expected form. %s", known)
	err.Violations = violations
	return err
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
