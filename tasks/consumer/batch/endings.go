package batch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
)

// maxEndings bounds what is remembered of handled tasks that asynq then gave up, as it does when Redis was away for too long.
const maxEndings = 10_000

// endings remembers what a handler said about its task until asynq ends the task, by a script that has no word for it.
type endings struct {
	mu sync.Mutex
	of map[string]ending // by id
}

type ending struct {
	stale bool
	early bool
	wait  time.Duration // of a task that came early
}

// note remembers what err says.
func (e *endings) note(ctx context.Context, err error) {
	id, ok := asynq.GetTaskID(ctx)
	if err == nil || !ok {
		return
	}
	var early *job.TaskEarly
	var end ending
	switch {
	case errors.Is(err, job.ErrTaskStale):
		end.stale = true
	case errors.As(err, &early):
		end.early, end.wait = true, early.Wait
	default:
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil || len(e.of) >= maxEndings {
		e.of = map[string]ending{}
	}
	e.of[id] = end
}

// take gives what was said, and forgets it.
func (e *endings) take(id string) ending {
	e.mu.Lock()
	defer e.mu.Unlock()
	end := e.of[id]
	delete(e.of, id)
	return end
}
