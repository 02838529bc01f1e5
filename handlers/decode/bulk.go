package decode

import (
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// Bulk reads the body of a client's request for a bulk operation.
func Bulk(body []byte) (job.BulkRequest, error) {
	return public.bulk(body, func(filter []byte) (f job.BulkFilter) {
		_ = json.Unmarshal(filter, &f) // the schema has checked it
		return f
	})
}

// Bulk reads the body of an operator's request for a bulk operation. Its filter has the names of the operator API's lists.
func (s *Schemas) Bulk(body []byte) (job.BulkRequest, error) {
	return s.bulk(body, func(filter []byte) job.BulkFilter {
		var sent struct {
			job.BulkFilter
			Kind     job.Kind
			From, To *job.Time
		}
		_ = json.Unmarshal(filter, &sent) // the schema has checked it
		sent.WorkKind, sent.CreatedAfter, sent.CreatedBefore = sent.Kind, sent.From, sent.To
		return sent.BulkFilter
	})
}

func (s *Schemas) bulk(body []byte, filter func([]byte) job.BulkFilter) (job.BulkRequest, error) {
	sent := struct {
		job.BulkRequest
		Filter json.RawMessage
		DryRun bool `json:"dry_run"`
		Rate   *int
	}{}
	q := job.BulkRequest{Rate: job.DefaultBulkRate}
	err := s.read("BulkRequest", body, &sent, func(r *reader) {
		q.Action, q.DryRun, q.Override = sent.Action, sent.DryRun, sent.Override
		if sent.Rate != nil {
			q.Rate = *sent.Rate
		}
		if sent.Filter != nil {
			q.Filter = filter(sent.Filter)
		}
		rest := q.Filter
		switch rest.All = false; {
		case q.Filter.All && rest.Names():
			r.invalidAt("/filter/all", "All jobs are meant or those that match other members; leave one of both out.")
		case r.fine() && !q.Filter.Names():
			r.invalidAt("/filter", "The filter must name at least one member. To mean all of your jobs, send {\"all\": true}.")
		case r.fine() && q.Override && q.Action != job.BulkRetry:
			r.invalidAt("/override", "Only a retry can override.")
		}
	})
	return q, err
}
