// Package testbed contains the types of a test bed: jobs in given states, a movable clock, and the description of our API for faults and
// verdicts.
package testbed

import (
	"slices"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

// API describes our API for fault profiles. The names of operations are their operationIds.
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

	SeeOther: true,
}

// Scope selects the requests, jobs and deliveries of a client that have the label of one session. Session is the id of this session. A zero
// Session selects requests, jobs and deliveries without a label.
type Scope struct{ Client, Session job.ID }

var roles = map[string]verdict.Role{
	"submitJob": verdict.Submit, "submitBatch": verdict.SubmitMany, "getJob": verdict.Read, "listJobs": verdict.List,
	"getBatch": verdict.ReadMany, "getResult": verdict.Outcome, "getReport": verdict.Outcome, "jobEvents": verdict.Stream,
	"clientEvents": verdict.Stream, "retryJob": verdict.Retry, "reset": verdict.Reset, fault.Delivery: verdict.Delivery,
}

// RoleOf returns the role of an operation.
func RoleOf(operation string) verdict.Role { return roles[operation] }

// Shape names the JSON members that contain ids and states of jobs, batches and bulk operations, in ForgeRun's API and in outcome
// documents. An event or a delivery has event_name instead of a state. A batch has its state in `status`. So the filter of a bulk
// operation, with the members batch_id and state, does not count as a batch.
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

// ends are the final states of jobs, batches and bulk operations, and the events that report them.
var ends = append([]string{
	"SUCCEEDED", "FAILED", "CANCELED", "COMPLETED", "COMPLETED_WITH_ERRORS", "TIMED_OUT", "CANCELLED", "DONE", "ABORTED",
}, Ends...)

// Ends lists the events that report the end of a job, batch or bulk operation.
var Ends = []string{
	job.EventSucceeded, job.EventFailed, job.EventCanceled, job.EventRetriesExhausted, job.EventBatchCompleted, job.EventBulkCompleted,
}

// ItemOf returns the id by which a verdict identifies a job of a bulk operation.
func ItemOf(bulk, id job.ID) string { return bulk.String() + "/" + id.String() }

// IDOf returns an id as text, or "" for the zero id.
func IDOf(id job.ID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// ErrorOf returns the error code in a fault's response.
func ErrorOf(e *fault.Effect) job.Code {
	if e.Code != "" {
		return job.Code(e.Code)
	}
	code, _ := CodeOf(e.Status)
	return code
}

// usual has the preferred code for a status with several codes.
var usual = map[int]job.Code{503: job.CodeStorageUnavailable, 404: job.CodeJobNotFound}

// CodeOf returns the usual error code of an HTTP status, or false if no error code has this status.
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

// OwnedSession is a session with its owner, for operators.
type OwnedSession struct {
	ClientID job.ID `json:"client_id"`
	verdict.Session
}

// OwnedVerdict is a verdict with the owner of its session, for operators.
type OwnedVerdict struct {
	ClientID job.ID `json:"client_id"`
	verdict.Verdict
}

// OwnedRule is a rule with its owner, for operators.
type OwnedRule struct {
	ClientID job.ID `json:"client_id"`
	Label    string `json:"label,omitempty"` // label of the session
	fault.View
}
