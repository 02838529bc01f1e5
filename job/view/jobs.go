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
