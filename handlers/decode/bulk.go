package decode

import (
	"github.com/forgerun/forgerun/job"
)

// Bulk reads the body of a request for a bulk operation. An operator may name a client,
// and override what keeps jobs from being retried.
func Bulk(body []byte, operator bool) (job.BulkRequest, error) {
	r := job.BulkRequest{Rate: job.DefaultBulkRate}
	members := []member{
		{"action", required, set(&r.Action, choice("action", job.BulkActions))},
		{"filter", required, func(d *decoder) { readBulkFilter(d, &r.Filter, operator) }},
		{"dry_run", optional, set(&r.DryRun, readBool)},
		{"rate", optional, set(&r.Rate, integer(1, job.MaxBulkRate))},
	}
	if operator {
		members = append(members, member{"override", optional, set(&r.Override, readBool)})
	}
	d := readBody(body, members)
	if d.fine() && !r.Filter.Names() {
		d.invalidAt("/filter", "The filter must name at least one member. To mean all of your jobs, send {\"all\": true}.")
	}
	if d.fine() && r.Override && r.Action != job.BulkRetry {
		d.invalidAt("/override", "Only a retry can override.")
	}
	return r, d.result()
}

// readBulkFilter reads which jobs are meant. An operator's filter has the names of the operator API's
// lists, and says whose jobs.
func readBulkFilter(d *decoder, f *job.BulkFilter, operator bool) {
	kind, from, to := "work_kind", "created_after", "created_before"
	if operator {
		kind, from, to = "kind", "from", "to"
	}
	moment := as(pointer(readTime), job.TimeOf)
	members := []member{
		{"all", optional, set(&f.All, readBool)},
		{"state", optional, set(&f.State, choice("state", job.States))},
		{"type", optional, set(&f.Type, choice("type", job.Types))},
		{kind, optional, set(&f.WorkKind, choice("work kind", job.AllKinds()))},
		{"batch_id", optional, set(&f.BatchID, readID)},
		{"correlation_id", optional, set(&f.CorrelationID, readCorrelation)},
		{"failure_code", optional, set(&f.FailureCode, choice("failure code", failureCodes))},
		{from, optional, set(&f.CreatedAfter, moment)},
		{to, optional, set(&f.CreatedBefore, moment)},
	}
	if operator {
		members = append(members, member{"client_id", optional, set(&f.ClientID, readID)},
			member{"failure_detail", optional, set(&f.FailureDetail, readText)})
	}
	d.object(members)
	rest := *f
	if rest.All = false; f.All && rest.Names() {
		d.invalidAt("/filter/all", "All jobs are meant or those that match other members; leave one of both out.")
	}
}
