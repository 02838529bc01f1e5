// Package view has the JSON forms that the client API and the operator API share. Those of one API alone are in its
// package. The names of the members are those of the APIs' documents.
package view

import "github.com/forgerun/forgerun/job"

// OrNull makes the absent value null.
func OrNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// Job is the members that all views of a job have.
type Job struct {
	JobID         job.ID       `json:"job_id"`
	Type          job.Type     `json:"type"`
	WorkKind      job.Kind     `json:"work_kind"`
	State         job.State    `json:"state"`
	Outcome       *job.Outcome `json:"outcome"` // null until final
	CreatedAt     job.Time     `json:"created_at"`
	ExecutionAt   *job.Time    `json:"execution_at"`
	UpdatedAt     job.Time     `json:"updated_at"`
	StartedAt     *job.Time    `json:"started_at"`
	FinishedAt    *job.Time    `json:"finished_at"`
	CanceledAt    *job.Time    `json:"canceled_at"`
	Attempt       int          `json:"attempt"`
	Attempts      int          `json:"attempts"`
	MaxAttempts   int          `json:"max_attempts"`
	CanRetry      bool         `json:"can_retry"`
	BatchID       *job.ID      `json:"batch_id"`
	CorrelationID *string      `json:"correlation_id"`
}

// JobOf shows a job.
func JobOf(j *job.Job) Job {
	v := Job{
		JobID: j.ID, Type: j.Type, WorkKind: j.WorkKind, State: j.State, Outcome: OrNull(j.Outcome),
		CreatedAt: job.Time(j.CreatedAt), ExecutionAt: job.TimeOf(j.ExecutionAt), UpdatedAt: job.Time(j.UpdatedAt),
		StartedAt: job.TimeOf(j.StartedAt), FinishedAt: job.TimeOf(j.FinishedAt),
		Attempt: j.Attempt, Attempts: j.Attempt, MaxAttempts: j.MaxAttempts, CanRetry: j.CanRetry(),
		BatchID: OrNull(j.BatchID), CorrelationID: OrNull(j.CorrelationID),
	}
	if j.State == job.Canceled {
		v.CanceledAt = v.FinishedAt
	}
	return v
}

// Progress is how far a running job has come.
type Progress struct {
	Percentage     int      `json:"percentage"`
	Phase          string   `json:"phase"`
	StepsCompleted int      `json:"steps_completed"`
	StepsTotal     int      `json:"steps_total"`
	ItemsProcessed int      `json:"items_processed"`
	ItemsTotal     int      `json:"items_total"`
	UpdatedAt      job.Time `json:"updated_at"`
}

// ProgressOf is nil where that is not known.
func ProgressOf(p *job.Progress) *Progress {
	if p == nil {
		return nil
	}
	return &Progress{p.Percentage, p.Phase, p.StepsCompleted, p.StepsTotal, p.ItemsProcessed, p.ItemsTotal, job.Time(p.UpdatedAt)}
}

// Receipt is the answer to a submission.
type Receipt struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	CreatedAt job.Time  `json:"created_at"`

	Warnings []job.Violation `json:"warnings,omitempty"`
}

// Change is a job after what was to change its state.
type Change struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	UpdatedAt job.Time  `json:"updated_at"`
	Changed   bool      `json:"changed"` // false: the job was left as it is
}

// ChangeOf shows a change.
func ChangeOf(c job.Change) Change { return Change{c.JobID, c.State, job.Time(c.UpdatedAt), c.Changed} }

// Retried is a change that may have begun an attempt.
type Retried struct {
	Change
	Attempt int `json:"attempt"`
}

// RetriedOf shows such a change.
func RetriedOf(c job.Change) Retried { return Retried{ChangeOf(c), c.Attempt} }
