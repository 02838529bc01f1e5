// Package query checks the query parameters of both APIs, and signs the cursors of their lists.
package query

import (
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// Parameter is a query parameter.
type Parameter struct {
	Name   string
	Valid  func(string) bool
	Want   string   // description of a valid value
	Values []string // all possible values; nil if there are too many
}

// Choice returns a parameter with one of the given values.
func Choice[T ~string](name string, values []T) Parameter {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return Parameter{name, func(s string) bool { return slices.Contains(texts, s) }, decode.OneOf(values), texts}
}

// ID returns a parameter with the id of a resource.
func ID(name, of string) Parameter {
	return Parameter{Name: name, Valid: isID, Want: "the id of " + of + ", such as 0190a1b2-c3d4-7000-8000-000000000b01"}
}

// Time returns a parameter with a time.
func Time(name string) Parameter { return Parameter{Name: name, Valid: isTime, Want: decode.TimeForm} }

// Number returns a parameter with a positive integer.
func Number(name, want string) Parameter {
	return Parameter{Name: name, Valid: func(s string) bool { _, ok := Positive(s); return ok }, Want: want}
}

// Created are the parameters that filter by creation time.
var Created = []Parameter{Time("created_after"), Time("created_before")}

// Page are the parameters of all lists.
var Page = []Parameter{
	{Name: "limit", Valid: isLimit, Want: "a whole number from 1 to " + strconv.Itoa(MaxLimit)},
	{Name: "cursor", Valid: isCursor, Want: "the next_cursor of a previous page, unchanged"},
}

func isID(s string) bool   { id, err := job.ParseID(s); return err == nil && !id.IsZero() }
func isTime(s string) bool { _, err := job.ParseTime(s); return err == nil }

// Maximum and default number of entries on a page.
const (
	MaxLimit     = 100
	DefaultLimit = 50
)

func isLimit(s string) bool {
	n, ok := Positive(s)
	return ok && n <= MaxLimit
}

// TimeOf returns the time in a checked parameter, or nil if it is absent.
func TimeOf(text string) *time.Time {
	at, err := job.ParseTime(text)
	if err != nil {
		return nil
	}
	return &at
}

// IDOf returns the id in a checked parameter, or the zero id if it is absent.
func IDOf(text string) job.ID {
	id, _ := job.ParseID(text)
	return id
}

// Every number with maxPositiveDigits digits fits into 32 bits.
const maxPositiveDigits = 9

// Positive parses a positive decimal integer.
func Positive(s string) (int, bool) {
	if s == "" || len(s) > maxPositiveDigits || s[0] == '0' || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(s)
	return n, err == nil
}

// Names returns the names of parameters.
func Names(parameters []Parameter) []string {
	names := make([]string, len(parameters))
	for i, p := range parameters {
		names[i] = p.Name
	}
	return names
}

// maxNameShown limits how many bytes of an unknown parameter's name an error shows.
const maxNameShown = 64

// Check checks a non-empty query. `parameters` are the allowed parameters, `given` are the names and values in the query. One error lists
// all unknown, repeated and invalid parameters.
func Check(parameters []Parameter, given iter.Seq2[string, string]) error {
	known, names := "This resource has no query parameters.", Names(parameters)
	if len(names) > 0 {
		known = "The query parameters of this resource are " + strings.Join(names, ", ") + "; each may be given once."
	}
	seen := make(map[string]bool, len(names))
	foreign := true // true if a parameter is unknown or repeated, or the query has none, as in "&"
	var violations []job.Violation
	for name, value := range given {
		i := slices.Index(names, name)
		wrong, detail := i < 0 || seen[name] || !parameters[i].Valid(value), ""
		foreign = len(seen) > 0 && foreign || i < 0 || seen[name]
		switch {
		case !wrong || name == "" || len(violations) == job.MaxViolations:
		case i < 0:
			detail = "Unknown parameter." + decode.DidYouMean(name, names) + " " + known
		case seen[name]:
			detail = "This parameter can be given only once."
		default:
			detail = "Must be " + parameters[i].Want + "." + decode.DidYouMean(value, parameters[i].Values)
		}
		if detail != "" {
			shown := strings.ToValidUTF8(name[:min(len(name), maxNameShown)], "\uFFFD")
			violations = append(violations, job.Violation{Parameter: shown, Detail: detail})
		}
		seen[name] = true
	}
	switch {
	case len(violations) > 0:
		return job.Malformed("The query does not have the expected form.", violations...)
	case foreign:
		return job.Malformed("The query does not have the expected form. " + known)
	}
	return nil
}
