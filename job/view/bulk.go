package view

import "github.com/forgerun/forgerun/job"

// Bulk is a bulk operation without its filter. Each API adds its own type of filter.
type Bulk struct {
	BulkID     job.ID         `json:"bulk_id"`
	Action     job.BulkAction `json:"action"`
	Rate       int            `json:"rate"`
	State      job.BulkState  `json:"state"`
	Total      int            `json:"total"` // number of selected jobs; grows until all jobs are selected
	More       bool           `json:"more"`
	Done       int            `json:"done"`
	Succeeded  int            `json:"succeeded"`
	Skipped    int            `json:"skipped"`
	Failed     int            `json:"failed"`
	CreatedAt  job.Time       `json:"created_at"`
	StartedAt  *job.Time      `json:"started_at"`
	FinishedAt *job.Time      `json:"finished_at"`
	Operator   *string        `json:"operator"` // null for a client's operation
}

// BulkOf returns the view of an operation.
func BulkOf(b *job.Bulk) Bulk {
	return Bulk{
		BulkID: b.ID, Action: b.Action, Rate: b.Rate, State: b.State(), Total: b.Total, More: b.More,
		Done: b.Done, Succeeded: b.Succeeded, Skipped: b.Skipped, Failed: b.Failed,
		CreatedAt: job.Time(b.CreatedAt), StartedAt: job.TimeOf(b.StartedAt), FinishedAt: job.TimeOf(b.FinishedAt),
		Operator: OrNull(b.Owner.Operator),
	}
}

// BulkCount is the response to a dry run of a bulk operation.
type BulkCount[V any] struct {
	Count   int              `json:"count"`
	Changes int              `json:"changes"` // jobs that the operation would change
	Left    []job.BulkReason `json:"left"`    // reasons why the other jobs would not change
	More    bool             `json:"more"`
	Sample  []V              `json:"sample"`
}

// BulkCountOf returns the view of a dry run.
func BulkCountOf[V any](c job.BulkCount, view func(*job.Job) V) BulkCount[V] {
	v := BulkCount[V]{c.Count, c.Changes, append([]job.BulkReason{}, c.Left...), c.More, make([]V, len(c.Sample))}
	for i, j := range c.Sample {
		v.Sample[i] = view(j)
	}
	return v
}
