package decode

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/forgerun/forgerun/job"
)

// Bulk reads the body of a request for a bulk operation. An operator may name a client,
// and override what keeps jobs from being retried.
func Bulk(body []byte, operator bool) (job.BulkRequest, error) {
	d := newDecoder(body)
	r := job.BulkRequest{Rate: job.DefaultBulkRate}
	var hasAction, hasFilter bool
	members := []member{
		{name: "action", read: func() { r.Action, hasAction = choose(d, "action", job.BulkActions) }},
		{name: "filter", read: func() { hasFilter = d.bulkFilter(&r.Filter, operator) }},
		{name: "dry_run", read: func() { r.DryRun = d.boolean() }},
		{name: "rate", read: func() { r.Rate = d.integer(1, job.MaxBulkRate, r.Rate) }},
	}
	if operator {
		members = append(members, d.overrideMember(&r))
	}
	d.document(members)
	d.require(hasAction, "action")
	d.require(hasFilter, "filter")
	if hasFilter && d.err == nil && len(d.violations()) == 0 && !r.Filter.Names() {
		d.values = append(d.values, job.Violation{Pointer: "/filter", Detail: "The filter must name at least one member. To mean all of " +
			"your jobs, send {\"all\": true}."})
	}
	if r.Override && r.Action != job.BulkRetry && len(d.violations()) == 0 {
		d.values = append(d.values, job.Violation{Pointer: "/override", Detail: "Only a retry can override."})
	}
	return r, d.result()
}

// overrideMember is what operators may send besides.
func (d *decoder) overrideMember(r *job.BulkRequest) member {
	return member{name: "override", read: func() { r.Override = d.boolean() }}
}

// operatorsMembers are those of an operator's filter: a client's, in the names of the operator API's lists, and whose jobs.
func operatorsMembers(members []member, client func()) []member {
	for i, m := range members {
		switch m.name {
		case "work_kind":
			members[i].name = "kind"
		case "created_after":
			members[i].name = "from"
		case "created_before":
			members[i].name = "to"
		}
	}
	return append(members, member{name: "client_id", read: client})
}

// bulkFilter reads a filter; false if it is absent or no object.
func (d *decoder) bulkFilter(f *job.BulkFilter, operator bool) bool {
	if !d.begins('{', "an object") {
		return false
	}
	id := func(to *job.ID) func() { return func() { *to, _ = d.id() } }
	moment := func(to **job.Time) func() {
		return func() {
			at, _ := d.time()
			*to = job.TimeOf(at)
		}
	}
	members := []member{
		{name: "all", read: func() { f.All = d.boolean() }},
		{name: "state", read: func() { f.State, _ = choose(d, "state", job.States) }},
		{name: "type", read: func() { f.Type, _ = choose(d, "type", job.Types) }},
		{name: "work_kind", read: func() { f.WorkKind, _ = choose(d, "work kind", job.AllKinds()) }},
		{name: "batch_id", read: id(&f.BatchID)},
		{name: "correlation_id", read: func() { f.CorrelationID = d.word(ValidCorrelation, "The id must be "+CorrelationForm) }},
		{name: "failure_code", read: func() { f.FailureCode, _ = choose(d, "failure code", job.FailureCodes()) }},
		{name: "created_after", read: moment(&f.CreatedAfter)},
		{name: "created_before", read: moment(&f.CreatedBefore)},
	}
	if operator {
		members = operatorsMembers(members, id(&f.ClientID))
	}
	d.object(members)
	rest := *f
	if rest.All = false; f.All && rest.Names() {
		d.values = append(d.values, job.Violation{Pointer: "/filter/all", Detail: "All jobs are meant or those that match other members; " +
			"leave one of both out."})
	}
	return true
}

// choose reads one of the values, "" if it is none of them; false if it is absent or no
// string.
func choose[T ~string](d *decoder, what string, values []T) (T, bool) {
	text, ok := d.text()
	if ok && !slices.Contains(values, T(text)) {
		d.invalid("There is no such " + what + "." + suggest(d, text, values) + " It must be " + OneOf(values) + ".")
		return "", true
	}
	return T(text), ok
}

// integer reads a whole number within bounds; otherwise is what it is when absent or wrong.
func (d *decoder) integer(least, most, otherwise int) int {
	if !d.begins('0', "a whole number") {
		return otherwise
	}
	n, whole := wholeNumber(string(d.value()))
	if d.err != nil {
		return otherwise
	}
	if !whole || n < least || n > most {
		d.invalid(fmt.Sprintf("This must be a whole number from %d to %d.", least, most))
		return otherwise
	}
	return n
}

// wholeNumber reads a number that is a whole one, also in a form such as 1.0 or 1e2.
func wholeNumber(text string) (int, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, true
	}
	n, err := strconv.ParseFloat(text, 64)
	return int(n), err == nil && n == math.Trunc(n) && math.Abs(n) <= 1<<53
}
