package handlers

import (
	"strconv"

	"github.com/forgerun/forgerun/job"
)

type reportView struct {
	JobID      job.ID        `json:"job_id"`
	Attempt    int           `json:"attempt"`
	Outcome    job.Outcome   `json:"outcome"`
	StartedAt  *job.Time     `json:"started_at"` // null if it never started
	FinishedAt *job.Time     `json:"finished_at"`
	DurationMS int64         `json:"duration_ms"`
	Failure    *job.Document `json:"failure,omitempty"`
	Events     []eventView   `json:"events"`
}

func (s *Server) reportViewOf(r *job.Report) *reportView {
	v := &reportView{
		JobID: r.JobID, Attempt: r.Number, Outcome: r.Outcome,
		StartedAt: job.TimeOf(r.StartedAt), FinishedAt: job.TimeOf(r.FinishedAt),
		DurationMS: r.Duration.Milliseconds(), Failure: s.failureOf(r.Origin, r.Attempt),
		Events: make([]eventView, len(r.Events)),
	}
	for i, e := range r.Events {
		v.Events[i] = eventViewOf(e)
	}
	return v
}

// failureOf gives the document of an attempt that failed, nil of others.
func (s *Server) failureOf(o job.Origin, a job.Attempt) *job.Document {
	if a.State != job.Failed {
		return nil
	}
	document := s.links.Document(o, a)
	return &document
}

// attemptView is an attempt in the list of a job's attempts.
type attemptView struct {
	Attempt    int              `json:"attempt"`
	State      job.State        `json:"state"`
	Outcome    *job.Outcome     `json:"outcome"` // null until it has ended
	StartedAt  *job.Time        `json:"started_at"`
	FinishedAt *job.Time        `json:"finished_at"`
	DurationMS *int64           `json:"duration_ms"`
	Failure    *job.Document    `json:"failure,omitempty"`
	Links      attemptLinksView `json:"links"`
}

type attemptLinksView struct {
	Self   string `json:"self"`
	Report string `json:"report,omitempty"`
}

func (s *Server) attemptViewOf(o job.Origin, a job.Attempt) attemptView {
	v := attemptView{
		Attempt: a.Number, State: a.State, Outcome: orNull(a.Outcome), StartedAt: job.TimeOf(a.StartedAt),
		Failure: s.failureOf(o, a), Links: attemptLinksView{Self: job.AttemptPath(o.JobID, a.Number)},
	}
	if !a.State.Final() {
		return v
	}
	v.FinishedAt = job.TimeOf(a.FinishedAt)
	v.Links.Report = jobPath(o.JobID) + "/report?attempt=" + strconv.Itoa(a.Number)
	if a.StartedAt != nil && a.FinishedAt != nil {
		duration := a.FinishedAt.Sub(*a.StartedAt).Milliseconds()
		v.DurationMS = &duration
	}
	return v
}
