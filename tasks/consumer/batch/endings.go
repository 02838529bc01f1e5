package batch

import (
	"context"
	"errors"
	"sync"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
)

// maxEndings bounds what is remembered of handled tasks that asynq then gave up, as it does when Redis was away for too long.
const maxEndings = 10_000

// endings remembers that a task was stale, or came early, until asynq ends it by a script that has no word for that.
type endings struct {
	mu sync.Mutex
	of map[string]error // by id
}

// note remembers what err says of the task that ctx is of.
func (e *endings) note(ctx context.Context, err error) {
	id, ok := asynq.GetTaskID(ctx)
	var early *job.TaskEarly
	if !ok || !errors.Is(err, job.ErrTaskStale) && !errors.As(err, &early) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil || len(e.of) >= maxEndings {
		e.of = map[string]error{}
	}
	e.of[id] = err
}

// take gives what was said, and forgets it.
func (e *endings) take(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.of[id]
	delete(e.of, id)
	return err
}
