package judge

import "github.com/forgerun/forgerun/internal/simulator/history"

// judgeTasks: a task that is queued has its job, which waits for it.
//
// A worker that died leaves its task active for a minute or two, and a canceled
// job leaves the one that was scheduled for it until its time: both do no harm.
func (c *checker) checkTasks() {
	for _, f := range c.byKind[history.QueuedTask] {
		if f.Task == nil || !c.run.complete(Rows) {
			continue
		}
		c.look(tasked)
		c.must(c.row != nil, tasked, "task %s is %s, and its job does not exist", f.Task.ID, f.Task.State)
		if c.row == nil || c.run.Interrupted {
			continue
		}
		waits := waiting(c.row.State) && c.row.Attempt == f.Task.Attempt
		c.must(waits || c.mayRemain(f), tasked, "task %s is %s, and its job is %s at attempt %d", f.Task.ID, f.Task.State, c.row.State, c.row.Attempt)
	}
}

func (c *checker) mayRemain(f *history.Fact) bool {
	switch f.Task.State {
	case "active":
		return c.run.Killed || c.run.Chaos
	case "scheduled":
		return c.row.RunAt != nil && f.At.Before(c.row.RunAt.Add(c.run.overdue()))
	}
	return false
}
