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
	nameCreated      = "job.created"
	nameRetried      = "job.retried"
	nameLeaseExpired = "job.lease_expired"
	nameExhausted    = "job.retries_exhausted"
	nameEmitted      = "event.emitted"
)

// transitions is the table of section 9. The return of an expired lease, ASSIGNED
// to QUEUED, is allowed by the name of its event alone.
var transitions = map[string][]string{
	created:  {queued, canceled},
	queued:   {assigned, canceled},
	assigned: {running, canceled},
	running:  {succeeded, failed, canceled},
	failed:   {queued},
}

// outcomes maps each final state to its outcome (section 8).
var outcomes = map[string]string{succeeded: "SUCCESS", failed: "FAILED", canceled: "CANCELED"}

func final(state string) bool { return outcomes[state] != "" }

func waiting(state string) bool { return state == created || state == queued }

// eventName names the event of a transition, "" for a pair that is none.
func eventName(from, to string) string {
	switch {
	case from == "" && to == created:
		return nameCreated
	case from == failed && to == queued:
		return nameRetried
	case from == assigned && to == queued:
		return nameLeaseExpired
	case !slices.Contains(transitions[from], to):
		return ""
	}
	return "job." + strings.ToLower(to)
}

// ofNoJob reports whether events of the name belong to a client and to no job.
func ofNoJob(name string) bool {
	return strings.HasPrefix(name, "batch.") || strings.HasPrefix(name, "webhook.")
}

// plainName gives the name of an event as logs spell it, of a stream's spelling:
// job-lease-expired is job.lease_expired.
func plainName(name string) string {
	first, rest, ok := strings.Cut(name, "-")
	if !ok || strings.Contains(name, ".") {
		return name
	}
	return first + "." + strings.ReplaceAll(rest, "-", "_")
}

// endsAttempt reports whether events of the name end an attempt: a stream shows
// these as outcome documents.
func endsAttempt(name string) bool {
	return name == "job.succeeded" || name == "job.failed" || name == "job.canceled"
}

// statusOf is the jobStatus of the document about an event, "" for one that has
// none. A failure is TIMED_OUT if its code says so.
func statusOf(name, failure string) string {
	switch name {
	case nameCreated, "job.queued", "job.assigned", nameRetried, nameLeaseExpired:
		return "ACCEPTED"
	case "job.running", nameEmitted:
		return "PROCESSING"
	case "job.succeeded":
		return "COMPLETED"
	case "job.canceled":
		return "CANCELLED"
	case "job.failed", nameExhausted:
		if failure == codeTimeout {
			return "TIMED_OUT"
		}
		return "FAILED"
	}
	return ""
}

// subscribed reports whether a subscription to the patterns covers an event.
func subscribed(patterns []string, name string) bool {
	first, _, _ := strings.Cut(name, ".")
	return slices.Contains(patterns, "*") || slices.Contains(patterns, first+".*") || slices.Contains(patterns, name)
}
