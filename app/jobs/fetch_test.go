package jobs

import (
	"errors"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// take gives a task that is due, and makes it active.
func (w *worldJobs) take() (job.Task, bool) {
	q := w.Queue
	q.Mu.Lock()
	defer q.Mu.Unlock()
	if q.Err != nil {
		return job.Task{}, false
	}
	for name, t := range q.Tasks {
		if t.State == "pending" && !t.RunAt.After(time.Now()) {
			t.State = "active"
			q.Tasks[name] = t
			return t.Task, true
		}
	}
	return job.Task{}, false
}

// done ends an active task; with an error it is offered again later.
func (w *worldJobs) done(t job.Task, err error) {
	w.Queue.Change(func() {
		if _, ok := w.Queue.Tasks[apptest.TaskName(t)]; !ok {
			return // flushed meanwhile
		}
		delete(w.Queue.Tasks, apptest.TaskName(t))
		if apptest.Trouble(err) != nil {
			wait := time.Second
			if early := (*job.TaskEarly)(nil); errors.As(err, &early) {
				wait = early.Wait
			}
			t.RunAt = time.Now().Add(wait)
			w.Queue.Tasks[apptest.TaskName(t)] = apptest.Queued{Task: t, State: "pending"}
		}
	})
}
