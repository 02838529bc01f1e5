package apptest

import (
	"github.com/forgerun/forgerun/job"
)

// happens changes a job without a notification.
func (w *World) Happens(t job.Task, to job.State) {
	w.Store.Change(t.JobID, func(r *Row) { w.Store.Move(r, to) })
}
