// Package testbed has the types of a test bed: jobs in given states, a clock that can be moved, and what faults and
// verdicts need to know of the API.
package testbed

import (
	"slices"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

// API is what profiles of faults need to know of ours. Operations are named by their operationIds.
var API = fault.API{
	Operations: map[fault.Use][]string{
		fault.Submissions: {"submitJob", "submitBatch"},
		fault.Lookups:     {"getJob", "listJobs", "getBatch"},
		fault.Outcomes:    {"getResult", "getReport"},
		fault.Streams:     {"jobEvents", "clientEvents"},
	},
	Lists:   []string{"listJobs", "getBatch"},
	Full:    string(job.CodeQueueFull),
	Limited: string(job.CodeRateLimited),
	Expired: string(job.CodeTokenExpired),
}

// Scope is whose requests, jobs and deliveries something is about: a client's, of its session with a label, or with the zero session
// those without a label.
type Scope struct{ Client, Session job.ID }

var roles = map[string]verdict.Role{
	"submitJob": verdict.Submit, "submitBatch": verdict.SubmitMany, "getJob": verdict.Read, "listJobs": verdict.List,
	"getBatch": verdict.ReadMany, "getResult": verdict.Outcome, "getReport": verdict.Outcome, "jobEvents": verdict.Stream,
	"clientEvents": verdict.Stream, "retryJob": verdict.Retry, "reset": verdict.Reset, fault.Delivery: verdict.Delivery,
}

// RoleOf gives what an operation does for its client.
func RoleOf(operation string) verdict.Role { return roles[operation] }

// Shape is how documents show jobs, batches and bulk operations, in both vocabularies. An event or a delivery has the name of what
// happened, whatever its own state is. The filter of a bulk operation names a batch and a state, and shows neither.
var Shape = wire.Shape{
	Things: []wire.Thing{
		{
			ID: []string{"job_id"}, Event: "event_name", State: []string{"state", "jobStatus", "next_state"},
			Open: "RUNNING", Ends: []string{"CANCELED", "FAILED"},
		},
		{
			ID: []string{"jobId"}, Event: "event_name", State: []string{"jobStatus", "state", "next_state"},
			Open: "PROCESSING", Ends: []string{"CANCELLED", "FAILED"},
		},
		{
			ID: []string{"batch_id"}, Event: "event_name", State: []string{"status"},
			Open: "PROCESSING", Ends: []string{"CANCELLED", "FAILED"},
		},
		{ID: []string{"bulk_id", "bulkId"}, State: []string{"state"}, Open: "RUNNING", Ends: []string{"ABORTED", "DONE"}},
	},
	Final: func(state any) bool {
		text, _ := state.(string)
		return slices.Contains(ends, text)
	},
	Job: func(id string) (string, bool) {
		known, err := job.ParseID(id)
		return known.String(), err == nil
	},
}

// ends are the states of a job, batch or bulk operation that has ended, and the events that say so.
var ends = append([]string{
	"SUCCEEDED", "FAILED", "CANCELED", "COMPLETED", "COMPLETED_WITH_ERRORS", "TIMED_OUT", "CANCELLED", "DONE", "ABORTED",
}, Ends...)

// Ends are the events that tell of an end.
var Ends = []string{
	job.EventSucceeded, job.EventFailed, job.EventCanceled, job.EventRetriesExhausted, job.EventBatchCompleted, job.EventBulkCompleted,
}

// ItemOf returns the name that verdicts have for a job in a bulk operation.
func ItemOf(bulk, id job.ID) string { return bulk.String() + "/" + id.String() }

// IDOf returns an id as verdicts have it; the zero id is empty.
func IDOf(id job.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// ErrorOf gives the code of the error that a fault answers with.
func ErrorOf(e *fault.Effect) job.Code {
	if e.Code != "" {
		return job.Code(e.Code)
	}
	code, _ := CodeOf(e.Status)
	return code
}

// usual are the codes of statuses that several have, where it is not the first one.
var usual = map[int]job.Code{503: job.CodeStorageUnavailable, 404: job.CodeJobNotFound}

// CodeOf gives the code that an error with a status usually has, false if there is none.
func CodeOf(status int) (job.Code, bool) {
	if code, ok := usual[status]; ok {
		return code, true
	}
	for _, spec := range job.Codes {
		if spec.Status == status {
			return spec.Code, true
		}
	}
	return "", false
}
