package tour

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// expectations are what must be seen of each kind, in the words of the table. Of
// all others the job succeeds.
var expectations = map[string]string{
	"FAIL_IMMEDIATE":                 client.Failed,
	"FAIL_AFTER_PROGRESS":            client.Failed,
	"FAIL_AFTER_RETRYABLE":           "FAILED, retryable",
	"RUNS_OVER_TIMEOUT":              "FAILED, timed out",
	"CANCEL_BEFORE_START":            client.Canceled,
	"CANCEL_DURING_RUN":              client.Canceled,
	"RETRY_ON_FAIL":                  "FAILED, then SUCCEEDED",
	"RETRY_LIMIT_REACHED":            "FAILED, no retry left",
	"DUPLICATE_SUBMIT_SAME_KEY":      "SUCCEEDED, same job",
	"DUPLICATE_SUBMIT_DIFFERENT_KEY": "SUCCEEDED, two jobs",
	"WEBHOOK_SUCCESS":                "SUCCEEDED, delivered",
	"WEBHOOK_TIMEOUT":                "SUCCEEDED, delivered on retry",
	"WEBHOOK_5XX":                    "SUCCEEDED, delivered on retry",
	"WEBHOOK_RETRIES_EXHAUSTED":      "SUCCEEDED, delivery FAILED",
	"WEBHOOK_SLOW_RECEIVER":          "SUCCEEDED, delivered late",
	"SCHEDULED_FAR_FUTURE":           "CREATED, then CANCELED",
	"PAYLOAD_INVALID":                "REJECTED",
}

// callbackName is the receiver of callbacks.
const callbackName = "callback"

// receiverName is that of a kind's webhook.
func receiverName(kind string) string { return strings.ReplaceAll(strings.ToLower(kind), "_", "-") }

// story is what the facts of a kind say of its jobs.
type story struct {
	jobs     []string // in order of their acceptance
	states   []string // that the last of them was seen in, repetitions left out
	end      *history.Job
	due      time.Time
	answer   history.Try // to the last submission
	refused  bool        // the last retry
	report   *history.Report
	delivery *history.Delivery // to the kind's webhook
}

func storyOf(facts []history.Fact) (s story) {
	for _, f := range facts {
		if f.Submission == nil {
			continue
		}
		for _, try := range f.Submission.Tries {
			s.answer = try
			if try.Accepted() && (len(s.jobs) == 0 || s.jobs[len(s.jobs)-1] != try.Job) {
				s.jobs = append(s.jobs, try.Job)
			}
		}
		if f.Submission.ExecutionAt != nil {
			s.due = *f.Submission.ExecutionAt
		}
	}
	if s.answer.Accepted() && s.answer.State != "" {
		s.states = append(s.states, s.answer.State)
	}
	for _, f := range facts {
		if len(s.jobs) == 0 || f.Job != s.jobs[len(s.jobs)-1] {
			continue
		}
		if state := stateIn(f); state != "" && (len(s.states) == 0 || s.states[len(s.states)-1] != state) {
			s.states = append(s.states, state)
		}
		switch {
		case f.Kind == history.Looked && f.Told.State != "":
			s.end = f.Told
		case f.Kind == history.Acted && f.Action.Verb == "retry":
			s.refused = f.Action.Status == http.StatusConflict
		case f.Kind == history.ToldReport && f.Report != nil && (s.report == nil || f.Report.Attempt >= s.report.Attempt):
			s.report = f.Report
		case f.Kind == history.ToldDelivery && f.Delivery.Webhook != "":
			s.delivery = f.Delivery
		}
	}
	return s
}

// last is the state that the job was seen in last.
func (s *story) last() string {
	if len(s.states) == 0 {
		return ""
	}
	return s.states[len(s.states)-1]
}

// outcome says what became of the kind in the words of the table.
func (s *story) outcome(kind string) string {
	switch end := s.ending(); {
	case kind == "PAYLOAD_INVALID" && s.answer.Status == http.StatusBadRequest && s.answer.Code == "RFA_JOB_VALIDATION_FAILED":
		return "REJECTED"
	case kind == "PAYLOAD_INVALID" && s.answer.Accepted():
		return "ACCEPTED"
	case len(s.jobs) == 0:
		return ""
	case strings.HasPrefix(kind, "RETRY_") && s.last() == client.Failed && s.refused:
		return "FAILED, no retry left"
	case kind == "RETRY_ON_FAIL" && s.end != nil && s.end.Attempt > 1:
		return "FAILED, then " + s.last()
	case strings.HasPrefix(kind, "RETRY_"):
		return s.last()
	case kind == "SCHEDULED_FAR_FUTURE" && len(s.states) > 1:
		return s.states[0] + ", then " + s.last()
	case strings.HasPrefix(kind, "DUPLICATE_"):
		return end + map[bool]string{true: ", same job", false: ", two jobs"}[len(s.jobs) == 1]
	case s.delivery != nil && end == client.Succeeded:
		return end + ", " + s.delivered(kind)
	default:
		return end
	}
}

func (s *story) ending() string {
	if s.last() != client.Failed || s.end == nil || s.end.Document == nil {
		return s.last()
	}
	switch d := s.end.Document; {
	case d.Status == "TIMED_OUT":
		return "FAILED, timed out"
	case d.Retryable:
		return "FAILED, retryable"
	}
	return client.Failed
}

func (s *story) delivered(kind string) string {
	switch d := s.delivery; {
	case d.State == "PENDING":
		return fmt.Sprintf("%d tries so far", d.Attempts)
	case d.State == "FAILED":
		return "delivery FAILED"
	case d.Attempts > 1:
		return "delivered on retry"
	case kind == "WEBHOOK_SLOW_RECEIVER":
		return "delivered late"
	}
	return "delivered"
}

// entered is when the job first came into the state, by its report.
func (s *story) entered(state string) (at time.Time, ok bool) {
	if s.report != nil {
		for _, e := range s.report.Events {
			if e.Next == state {
				return e.At, true
			}
		}
	}
	return at, false
}
