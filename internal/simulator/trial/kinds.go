package trial

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

const (
	punctual = 2 * time.Second // limit of the time from execution_at to QUEUED
	recovery = 5 * time.Second // for a job due during an outage: limit of the time from the outage's end to QUEUED
)

// outage has the times at which all processes were stopped, started again, and ready.
type outage struct{ down, restarted, ready time.Time }

func (t *Trial) expectsKinds() bool {
	return slices.ContainsFunc(t.o.Scenario.Mix, func(w scenario.Work) bool { return w.Expect != "" })
}

// workKinds compares the jobs of each work kind with the scenario's expectations. The findings of a work kind include the judge's
// violations about its jobs.
func (t *Trial) workKinds(verdict *judge.Verdict) (rows []report.WorkKind, err error) {
	stories := map[string][]*story{} // by kind
	for bucket := range history.Buckets + 1 {
		jobs, err := t.facts.Jobs(bucket)
		if err != nil {
			return nil, err
		}
		for _, about := range jobs {
			for _, f := range about {
				if f.Kind == history.Submitted {
					stories[f.Submission.WorkKind] = append(stories[f.Submission.WorkKind], newStory(f, about))
				}
			}
		}
	}
	for _, w := range t.o.Scenario.Mix {
		for _, kind := range w.Kinds {
			listed := slices.ContainsFunc(rows, func(r report.WorkKind) bool { return r.Kind == kind })
			if w.Expect != "" && !listed {
				rows = append(rows, t.workKind(kind, w.Expect, stories[kind], verdict.Violations))
			}
		}
	}
	return rows, nil
}

func (t *Trial) workKind(kind, expected string, stories []*story, violations []judge.Violation) report.WorkKind {
	r := report.WorkKind{Kind: kind, Expected: expected, Got: "nothing"}
	slices.SortFunc(stories, func(a, b *story) int { return cmp.Compare(a.ticket, b.ticket) })
	if inTime := slices.DeleteFunc(slices.Clone(stories), (*story).overtaken); len(inTime) > 0 {
		stories = inTime
	}
	for _, s := range stories {
		if s.job != "" {
			r.Jobs++
		}
		if got := s.outcome(); r.Got == "nothing" || r.Got == expected {
			r.Got, r.Attempts = got, s.shown.Attempt
			if s.report != nil {
				r.DurationMS = s.report.DurationMS
			}
		}
		if why := s.late(t.outage); why != "" {
			r.Findings = append(r.Findings, why)
		}
		for _, v := range violations {
			about := v.Job != "" && v.Job == s.job || v.Ticket != 0 && v.Ticket == s.ticket
			if about && !slices.Contains(r.Findings, v.What) { // two invariants may report the same text
				r.Findings = append(r.Findings, v.What)
			}
		}
		if s.delivery != nil && s.delivery.Error != "" && !r.OK() {
			r.Findings = append(r.Findings, fmt.Sprintf("the last attempt to deliver failed with %s: the service must reach the receiver "+
				"(FORGERUN_WEBHOOK_ALLOW_PRIVATE for a private address, --receiver-addr, --receiver-url)", s.delivery.Error))
		}
	}
	return r
}

type story struct {
	ticket   int64
	job      string // job id; "" if no submission was accepted
	answer   history.Answer
	due      time.Time
	shown    history.Job // the job in its latest observed state
	canceled bool        // the client's cancel succeeded
	refused  string      // "cancel" or "retry" if the service refused the client's last action; otherwise ""
	retried  bool
	report   *history.Report   // report of the last attempt
	delivery *history.Delivery // delivery of job.succeeded to the job's callback
}

func newStory(submitted history.Fact, facts []history.Fact) *story {
	s := &story{ticket: submitted.Ticket, job: submitted.Job, due: submitted.Submission.ExecutionAt}
	for _, try := range submitted.Submission.Tries {
		s.answer = try
	}
	if s.job == "" {
		return s
	}
	for _, f := range facts {
		switch {
		case f.Kind == history.Acted && f.Action.Status == http.StatusConflict:
			s.refused = f.Action.Verb
		case f.Kind == history.Acted && f.Action.Status == http.StatusOK:
			s.refused = ""
			s.retried = s.retried || f.Action.Verb == "retry"
			s.canceled = s.canceled || f.Action.Verb == "cancel"
		case f.Kind == history.ListedJob, f.Kind == history.Looked && f.Shown.State != "":
			failure := s.shown.Failure // a list of jobs has no failures, so keep the failure of an earlier response
			if s.shown = *f.Shown; s.shown.Failure == nil && s.shown.State == client.Failed {
				s.shown.Failure = failure
			}
		case f.Kind == history.APIReport && f.Report != nil && (s.report == nil || f.Report.Attempt >= s.report.Attempt):
			s.report = f.Report
		case f.Kind == history.APIDelivery && f.Delivery.Webhook == "" && f.Delivery.EventName == "job.succeeded":
			s.delivery = f.Delivery
		}
	}
	return s
}

// overtaken reports whether the service refused to cancel the job because the job had ended.
func (s *story) overtaken() bool { return s.refused == "cancel" && !s.canceled }

// outcome returns how the job ended, in the notation of Work.Expect.
func (s *story) outcome() string {
	state, failure := s.shown.State, s.shown.Failure
	switch {
	case s.job == "" && s.answer.Status == http.StatusBadRequest && s.answer.Code == "RFA_JOB_VALIDATION_FAILED":
		return "REJECTED"
	case s.job == "":
		return fmt.Sprintf("%d %s", s.answer.Status, s.answer.Code)
	case s.refused == "retry" && state == client.Failed:
		return "FAILED, no retry left"
	case s.retried:
		return "FAILED, then " + state
	case state == client.Canceled && s.entered(client.Running).IsZero():
		return "CANCELED, never ran"
	case state == client.Canceled:
		return "CANCELED, while it ran"
	case failure != nil && failure.JobStatus == "TIMED_OUT":
		return "FAILED, timed out"
	case failure != nil && failure.Retryable():
		return "FAILED, retryable"
	case s.delivery == nil || state != client.Succeeded:
		return state
	case s.delivery.State == "DELIVERED" && s.delivery.Attempts > 1:
		return "SUCCEEDED, delivered on retry"
	case s.delivery.State == "DELIVERED":
		return "SUCCEEDED, delivered"
	}
	return "SUCCEEDED, delivery " + s.delivery.State
}

// late returns a message if a deferred job was queued too early or too late, otherwise "".
func (s *story) late(o outage) string {
	queued := s.entered(client.Queued)
	switch {
	case s.due.IsZero() || queued.IsZero():
	case o.down.Before(s.due) && s.due.Before(o.restarted) && queued.Before(o.restarted):
		return fmt.Sprintf("it became due while the service was down, but was queued %s before the service was started again",
			o.restarted.Sub(queued))
	case o.down.Before(s.due) && s.due.Before(o.ready) && queued.Sub(o.ready) > recovery:
		return fmt.Sprintf("it was queued %s after the service was back, but only %s are allowed", queued.Sub(o.ready), recovery)
	case !(o.down.Before(s.due) && s.due.Before(o.ready)) && queued.Sub(s.due) > punctual:
		return fmt.Sprintf("it was queued %s after its execution time, but only %s are allowed", queued.Sub(s.due), punctual)
	}
	return ""
}

func (s *story) entered(state string) time.Time {
	if s.report != nil {
		for _, e := range s.report.Events {
			if e.Next == state {
				return e.At
			}
		}
	}
	return time.Time{}
}
