package tasks

import (
	"context"
	_ "embed"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// finishPause is for how long handled tasks are gathered before they are
	// removed from Redis: nobody waits for that.
	finishPause = 2 * time.Millisecond
	// maxFinish is how many tasks one exchange removes. Redis may have to search a
	// long list for each, and does nothing else meanwhile.
	maxFinish = 100
	// maxFinished is how many tasks may wait to be removed.
	maxFinished = 20_000
	// finishTime is after how long a task is not removed any more: asynq's lease
	// has ended, and it may be somebody else's.
	finishTime = 30 * time.Second
)

//go:embed finish.lua
var finishSource string

var finishScript = redis.NewScript(finishSource)

var errFinishFull = errors.New("too many handled tasks wait to be removed from Redis")

// finisher removes handled tasks from Redis, soon, many in one exchange. asynq
// is told before that they are gone: one that is not removed after all is run
// again when its lease has ended, and its handler then finds nothing to do.
type finisher struct {
	client redis.UniversalClient
	keys   queueKeys
	added  chan struct{} // a word that some wait

	mu      sync.Mutex
	waiting []finished
	day     dayCount
}

type finished struct {
	id string
	at time.Time
}

// dayCount is where asynq counts the tasks of a day, and until when.
type dayCount struct {
	key string
	end any
}

func newFinisher(client redis.UniversalClient, queue string) *finisher {
	return &finisher{client: client, keys: keysOf(queue), added: make(chan struct{}, 1)}
}

// finish has the task removed. With an error it is not going to be.
func (f *finisher) finish(id string, day dayCount) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) >= maxFinished {
		return errFinishFull
	}
	f.waiting, f.day = append(f.waiting, finished{id, time.Now()}), day
	select {
	case f.added <- struct{}{}:
	default:
	}
	return nil
}

// run removes tasks until stopping is closed, and then those that wait.
func (f *finisher) run(stopping <-chan struct{}) {
	for {
		select {
		case <-f.added:
			pauseFor(finishPause, stopping)
			f.flush(stopping)
		case <-stopping:
			f.flush(stopping)
			return
		}
	}
}

// flush removes what waits. It tries again while Redis fails, but not after
// stopping is closed.
func (f *finisher) flush(stopping <-chan struct{}) {
	for tasks, day := f.take(); len(tasks) > 0; tasks, day = f.take() {
		if f.remove(tasks, day) == nil {
			continue
		}
		select {
		case <-stopping:
			return
		default:
			f.putBack(tasks)
			pauseFor(pacePause, stopping)
		}
	}
}

// take gives tasks that are to be removed now, and forgets those that are too old.
func (f *finisher) take() ([]finished, dayCount) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.waiting) > 0 && time.Since(f.waiting[0].at) > finishTime {
		f.waiting = f.waiting[1:]
	}
	n := min(maxFinish, len(f.waiting))
	tasks := f.waiting[:n:n]
	if f.waiting = f.waiting[n:]; len(f.waiting) == 0 {
		f.waiting = nil
	}
	return tasks, f.day
}

// putBack has tasks wait again that were taken.
func (f *finisher) putBack(tasks []finished) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(tasks, f.waiting...)
}

func (f *finisher) remove(tasks []finished, day dayCount) error {
	args := make([]any, 0, 2+len(tasks))
	args = append(args, day.end, f.keys.task)
	for _, t := range tasks {
		args = append(args, t.id)
	}
	keys := []string{f.keys.active, f.keys.lease, day.key, f.keys.count}
	return finishScript.Run(context.Background(), f.client, keys, args...).Err()
}
