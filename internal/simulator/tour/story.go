package tour

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
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

// story is what the facts of a kind say of its jobs.
type story struct {
	kind     string
	webhook  string   // id of the kind's own
	jobs     []string // in order of their tickets
	answer   history.Answer
	due      time.Time
	state    string // that the last job was seen in
	end      *history.Job
	retried  bool // the client asked for another attempt and got it
	refused  bool // the last time that it asked, it did not
	report   *history.Report
	delivery *history.Delivery // to the webhook
	received bool              // some try of that
}

// read gives the stories of all kinds, of which some have a webhook.
func read(folder string, webhooks []history.Webhook) (map[string]*story, error) {
	r, err := history.Open(folder)
	if err != nil {
		return nil, err
	}
	var submitted []history.Fact
	byJob := map[string][]history.Fact{}
	for bucket := 0; bucket <= history.Loose && err == nil; bucket++ {
		err = r.Each(bucket, func(f history.Fact) error {
			if f.Kind == history.Submitted {
				submitted = append(submitted, f)
			}
			if f.Job != "" {
				byJob[f.Job] = append(byJob[f.Job], f)
			}
			return nil
		})
	}
	slices.SortFunc(submitted, func(a, b history.Fact) int { return cmp.Compare(a.Ticket, b.Ticket) })
	stories := map[string]*story{}
	for _, f := range submitted {
		kind := f.Submission.WorkKind
		next := &story{kind: kind}
		if before := stories[kind]; before != nil {
			next.jobs = before.jobs
		}
		if i := slices.IndexFunc(webhooks, func(w history.Webhook) bool { return w.Name == receiverName(kind) }); i >= 0 {
			next.webhook = webhooks[i].ID
		}
		next.add(f, byJob[f.Job])
		stories[kind] = next
	}
	return stories, err
}

// receiverName is that of a kind's webhook.
func receiverName(kind string) string { return strings.ReplaceAll(strings.ToLower(kind), "_", "-") }

// add adds a submission, and what became of its job.
func (s *story) add(submitted history.Fact, facts []history.Fact) {
	if submitted.Job != "" && !slices.Contains(s.jobs, submitted.Job) {
		s.jobs = append(s.jobs, submitted.Job)
	}
	for _, try := range submitted.Submission.Tries {
		s.answer, s.state = try, cmp.Or(try.State, s.state)
	}
	s.due = submitted.Submission.ExecutionAt
	for _, f := range facts {
		s.addFact(f)
	}
}

func (s *story) addFact(f history.Fact) {
	switch {
	case f.Kind == history.Acted:
		s.state = cmp.Or(f.Action.State, s.state)
		if f.Action.Verb == "retry" {
			s.retried, s.refused = s.retried || f.Action.Status == http.StatusOK, f.Action.Status == http.StatusConflict
		}
	case f.Kind == history.Looked && f.Shown != nil && f.Shown.State != "":
		s.state, s.end = f.Shown.State, f.Shown
	case f.Kind == history.APIReport && f.Report != nil && (s.report == nil || f.Report.Attempt >= s.report.Attempt):
		s.report = f.Report
	case f.Delivery == nil || f.Delivery.Webhook == "" || f.Delivery.Webhook != s.webhook:
	case f.Kind == history.APIDelivery:
		s.delivery = f.Delivery
	case f.Kind == history.Received || f.Kind == history.Forbidden:
		s.received = true
	}
}

// outcome says what became of the kind in the words of the table.
func (s *story) outcome() string {
	switch {
	case len(s.jobs) == 0 && s.answer.Status == http.StatusBadRequest && s.answer.Code == "RFA_JOB_VALIDATION_FAILED":
		return "REJECTED"
	case len(s.jobs) == 0:
		return ""
	case s.refused && s.state == client.Failed:
		return "FAILED, no retry left"
	case s.retried:
		return "FAILED, then " + s.state
	case s.kind == "SCHEDULED_FAR_FUTURE":
		return s.answer.State + ", then " + s.state
	case strings.HasPrefix(s.kind, "DUPLICATE_"):
		return s.ending() + map[bool]string{true: ", same job", false: ", two jobs"}[len(s.jobs) == 1]
	case s.delivery != nil && s.state == client.Succeeded:
		return s.state + ", " + s.delivered()
	}
	return s.ending()
}

func (s *story) ending() string {
	switch {
	case s.state != client.Failed || s.end == nil || s.end.Failure == nil:
		return s.state
	case s.end.Failure.JobStatus == "TIMED_OUT":
		return "FAILED, timed out"
	case s.end.Failure.Retryable():
		return "FAILED, retryable"
	}
	return s.state
}

func (s *story) delivered() string {
	switch d := s.delivery; {
	case d.State == "PENDING":
		return fmt.Sprintf("%d tries so far", d.Attempts)
	case d.State == "FAILED":
		return "delivery FAILED"
	case d.Attempts > 1:
		return "delivered on retry"
	case s.kind == "WEBHOOK_SLOW_RECEIVER":
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
