//go:generate go run -C ../../tools ./apitypes ../job/admin/types.yaml

// Package admin contains the response types of the operator API. The store fills them in, and the admin listener sends them unchanged. The
// JSON members have the names from the admin API's OpenAPI document.
package admin

import (
	"encoding/json"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/view"
)

// JobQuery selects jobs of all clients. A zero member matches every job.
type JobQuery struct {
	ClientID      job.ID
	BatchID       job.ID
	ScheduleID    job.ID
	State         job.State
	Type          job.Type
	WorkKind      job.Kind
	CorrelationID string
	FailureCode   job.Code
	From, To      *time.Time // range of created_at; To is exclusive
	After         Place
	Limit         int
}

// Place is a position in a list of jobs: after the job with this ID. If the list is ordered by time, the field At is the time of that job.
// The zero value is the beginning of the list.
type Place struct {
	At time.Time
	ID job.ID
}

// IsZero reports whether p is the beginning of the list.
func (p Place) IsZero() bool { return p.ID.IsZero() }

// SummaryOf returns the summary of j.
func SummaryOf(j *job.Job) JobSummary {
	s := JobSummary{ClientID: j.ClientID, JobMembers: JobMembers{
		JobID: j.ID, Type: j.Type, WorkKind: j.WorkKind, State: j.State, Outcome: view.OrNull(j.Outcome),
		CreatedAt: job.Time(j.CreatedAt), ExecutionAt: job.TimeOf(j.ExecutionAt), UpdatedAt: job.Time(j.UpdatedAt),
		StartedAt: job.TimeOf(j.StartedAt), FinishedAt: job.TimeOf(j.FinishedAt),
		Attempt: j.Attempt, Attempts: j.Attempt, MaxAttempts: j.MaxAttempts, CanRetry: j.CanRetry(),
		BatchID: view.OrNull(j.BatchID), CorrelationID: view.OrNull(j.CorrelationID),
	}}
	if j.State == job.Canceled {
		s.CanceledAt = s.FinishedAt
	}
	if j.Failure != nil {
		s.FailureCode = &j.Failure.Code
	}
	return s
}

// JobPage is a part of a list of jobs. A page can be short or empty although more pages follow.
type JobPage struct {
	Jobs []JobSummary
	Next Place // zero at the end
}

// Event is an entry of a job's log.
type Event struct {
	EventID   job.ID          `json:"event_id"`
	Seq       int             `json:"seq"`
	JobID     job.ID          `json:"job_id"`
	EventName string          `json:"event_name"`
	PrevState *job.State      `json:"prev_state"`
	NextState *job.State      `json:"next_state"`
	Attempt   int             `json:"attempt"`
	Timestamp job.Time        `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}
