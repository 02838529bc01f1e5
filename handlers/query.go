package handlers

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job"
)

// parameter is what is known of a query parameter.
type parameter struct {
	valid func(string) bool
	want  string // what a value must be
}

// parameters are all query parameters. A route says which of them it knows.
var parameters = map[string]parameter{
	"attempt":        {isAttempt, "the number of an attempt, from 1"},
	"limit":          {isLimit, "a whole number from 1 to 100"},
	"cursor":         {isCursor, "the next_cursor of a page before"},
	"state":          {isState, "one of " + join(job.States)},
	"type":           {func(s string) bool { return job.Type(s).Valid() }, "EXECUTE, DEFERRED or EMIT_EVENT"},
	"work_kind":      {func(s string) bool { return job.Kind(s).Valid() }, "a work kind of the catalogue"},
	"batch_id":       {isID, "the id of a batch"},
	"created_after":  {isTime, timeWanted},
	"created_before": {isTime, timeWanted},
}

const timeWanted = "a time in RFC 3339 in UTC, such as 2030-01-31T12:00:00Z"

func isAttempt(s string) bool { _, ok := parseAttempt(s); return ok }
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
	n, ok := parseAttempt(s)
	return ok && n <= maxLimit
}

func join[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// checkQuery refuses query parameters that the route does not know, those that
// come twice, and values that are not of the right form, all at once.
func (r *call) checkQuery() error {
	if len(r.Request().URI().QueryString()) == 0 {
		return nil
	}
	if len(r.route.query) == 0 {
		return job.Errorf(job.CodeMalformed, "This resource has no query parameters.")
	}
	args := r.Request().URI().QueryArgs()
	seen := make(map[string]bool, len(r.route.query))
	foreign := args.Len() == 0 // "?=" and the like
	var wrong []string
	for name, value := range args.All() {
		name := string(name)
		if seen[name] || !slices.Contains(r.route.query, name) {
			foreign = true
			continue
		}
		seen[name] = true
		if p := parameters[name]; !p.valid(string(value)) {
			wrong = append(wrong, "The query parameter "+name+" is "+p.want+".")
		}
	}
	if foreign {
		wrong = append(wrong, "The query parameters of this resource are "+strings.Join(r.route.query, ", ")+"; each may be given once.")
	}
	if len(wrong) == 0 {
		return nil
	}
	return job.Errorf(job.CodeMalformed, "%s", strings.Join(wrong, " "))
}

// queryLimit gives the size of the page that is asked for.
func (r *call) queryLimit(otherwise int) int {
	if n, ok := parseAttempt(r.Query("limit")); ok {
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

// maxAttemptDigits keeps attempt numbers within every integer type.
const maxAttemptDigits = 9

// parseAttempt reads an attempt number: a positive integer in plain digits.
func parseAttempt(s string) (int, bool) {
	if s == "" || len(s) > maxAttemptDigits || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}
