package judge

import "github.com/forgerun/forgerun/internal/simulator/history"

// judgeTasks: a task that is queued has its job, which waits for it.
//
// A worker that died leaves its task active for a minute or two, and a canceled
// job leaves the one that was scheduled for it until its time: both do no harm.
func (q *inquiry) judgeTasks() {
	for _, f := range q.byKind[history.QueuedTask] {
		if f.Task == nil || !q.ground.whole(Rows) {
			continue
		}
		q.look(tasked)
		q.must(q.row != nil, tasked, "task %s is %s, and its job does not exist", f.Task.ID, f.Task.State)
		if q.row == nil || q.ground.Interrupted {
			continue
		}
		waits := waiting(q.row.State) && q.row.Attempt == f.Task.Attempt
		q.must(waits || q.excused(f), tasked, "task %s is %s, and its job is %s at attempt %d", f.Task.ID, f.Task.State, q.row.State, q.row.Attempt)
	}
}

func (q *inquiry) excused(f *history.Fact) bool {
	switch f.Task.State {
	case "active":
		return q.ground.Killed || q.ground.Chaos
	case "scheduled":
		return q.row.RunAt != nil && f.At.Before(q.row.RunAt.Add(q.ground.overdue()))
	}
	return false
}
