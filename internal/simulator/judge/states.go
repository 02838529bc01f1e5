package judge

import (
	"slices"
	"strings"
)

// The states of a job (section 9 of the API specification).
const (
	created   = "CREATED"
	queued    = "QUEUED"
	assigned  = "ASSIGNED"
	running   = "RUNNING"
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
	canceled  = "CANCELED"
)

// Names of events.
const (
	nameRetried      = "job.retried"
	nameLeaseExpired = "job.lease_expired"
	nameExhausted    = "job.retries_exhausted"
	nameEmitted      = "event.emitted"
)

// transitions is the table of section 9: the possible next states of each state, with the names of the events. "" is before the job.
var transitions = map[string]map[string]string{
	"":       {created: "job.created"},
	created:  {queued: "job.queued", canceled: "job.canceled"},
	queued:   {assigned: "job.assigned", canceled: "job.canceled"},
	assigned: {running: "job.running", canceled: "job.canceled", queued: nameLeaseExpired},
	running:  {succeeded: "job.succeeded", failed: "job.failed", canceled: "job.canceled"},
	failed:   {queued: nameRetried},
}

// eventName names the event of a transition, "" for a pair that is not one.
func eventName(from, to string) string { return transitions[from][to] }

// outcomes maps each final state to its outcome (section 8).
var outcomes = map[string]string{succeeded: "SUCCESS", failed: "FAILED", canceled: "CANCELED"}

func final(state string) bool { return outcomes[state] != "" }

func waiting(state string) bool { return state == created || state == queued }

// jobStatuses are the statuses in documents of events, by the events' names.
var jobStatuses = map[string]string{
	"job.created": "ACCEPTED", "job.queued": "ACCEPTED", "job.assigned": "ACCEPTED", nameRetried: "ACCEPTED", nameLeaseExpired: "ACCEPTED",
	"job.running": "PROCESSING", nameEmitted: "PROCESSING",
	"job.succeeded": "COMPLETED", "job.canceled": "CANCELLED", "job.failed": "FAILED", nameExhausted: "FAILED",
}

// statusOf returns the jobStatus in the document of an event, "" for none.
func statusOf(name, failure string) string {
	status := jobStatuses[name]
	if status == "FAILED" && failure == codeTimeout {
		return "TIMED_OUT"
	}
	return status
}

// endsAttempt: a stream shows these events as outcome documents.
func endsAttempt(name string) bool {
	return name == "job.succeeded" || name == "job.failed" || name == "job.canceled"
}

// ofNoJob reports whether events with the name belong to a client without a job.
func ofNoJob(name string) bool {
	return strings.HasPrefix(name, "batch.") || strings.HasPrefix(name, "webhook.")
}

// subscribed reports whether a subscription to the patterns covers an event.
func subscribed(patterns []string, name string) bool {
	first, _, _ := strings.Cut(name, ".")
	return slices.Contains(patterns, "*") || slices.Contains(patterns, first+".*") || slices.Contains(patterns, name)
}
