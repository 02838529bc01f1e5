package queue

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	listPage = 1000 // tasks per page
	maxPages = 5    // pages that one call reads; the rest of a longer list stays unread
	// If tasks are lost, a job or delivery can get up to maxAgain extra tasks, each with a new id.
	maxAgain = 8
	// stuckPending is how long asynq may show a task as pending although it is missing from the pending list. stuckActive is how long a task
	// may be active before its job is claimed. After this time, the worker of the task counts as dead. asynq itself notices a killed worker
	// only after a minute or two.
	stuckPending = 2 * time.Second
	stuckActive  = 10 * time.Second
	// Ensure leaves a waiting task alone if it will run within soonEnough. For a delivery to a busy endpoint, the limit is busyEnough.
	soonEnough = 3 * time.Second
	busyEnough = 35 * time.Second
	// sightingsKept is how long Ensure remembers that it saw a task in a suspicious state.
	sightingsKept = time.Minute
)

// Ensure makes sure that each of the due, unclaimed jobs has a task that will run. Ensure returns how many tasks it created or moved to the
// pending list. For a job that is not due yet, Ensure only creates a missing task. After an error, some jobs may have their task already;
// the call can be repeated.
func (q *Queue) Ensure(ctx context.Context, ts []job.Task) (made int, err error) {
	return q.ensure(ctx, redisconn.Jobs, hintsOf(ts, jobHint))
}

// EnsureDeliveries is like Ensure, for deliveries.
func (q *Queue) EnsureDeliveries(ctx context.Context, ts []job.DeliveryTask) (made int, err error) {
	return q.ensure(ctx, redisconn.Webhooks, hintsOf(ts, deliveryHint))
}

func hintsOf[T any](ts []T, of func(T) hint) []hint {
	hints := make([]hint, len(ts))
	for i, t := range ts {
		hints[i] = of(t)
	}
	return hints
}

func (q *Queue) ensure(ctx context.Context, name string, hints []hint) (made int, err error) {
	q.sightings.forget()
	look := look{queue: q, name: name, listed: map[string]bool{}}
	if err = look.page(ctx); err == nil {
		made, err = look.ensureAll(ctx, hints)
	}
	if err != nil {
		q.redis.Metrics.Ensured.WithLabelValues(redisconn.ResultFailed).Add(float64(len(hints)))
		return made, q.redis.Failed("ensure", err)
	}
	q.redis.Metrics.Ensured.WithLabelValues(redisconn.ResultOK).Add(float64(made))
	q.redis.Metrics.Ensured.WithLabelValues(redisconn.ResultPresent).Add(float64(len(hints) - made))
	return made, nil
}

type look struct {
	queue  *Queue
	name   string
	listed map[string]bool // ids of pending tasks, without a suffix such as "/1"
	pages  int
	ended  bool
}

// page reads the next page of pending tasks, in the order in which they will be taken.
func (l *look) page(ctx context.Context) error {
	l.pages++
	tasks, err := l.queue.redis.Inspector.ListPendingTasks(l.name, asynq.PageSize(listPage), asynq.Page(l.pages))
	switch {
	case errors.Is(err, asynq.ErrQueueNotFound): // asynq does not know the queue: it is new, or Redis was emptied
		if err := l.queue.register(ctx, l.name); err != nil {
			return err
		}
	case err != nil && strings.Contains(err.Error(), "WRONGTYPE"):
		tasks = nil // asynq cannot read a page with a damaged task; ensureOne looks up the tasks one by one
	case err != nil:
		return err
	}
	for _, t := range tasks {
		name, _, _ := strings.Cut(t.ID, againMark)
		l.listed[name] = true
	}
	l.ended = len(tasks) < listPage
	return nil
}

// isListed returns true if the task is, or may be, in the pending list.
func (l *look) isListed(ctx context.Context, h hint) (bool, error) {
	for !l.listed[h.id] && !l.ended && l.pages < maxPages {
		if err := l.page(ctx); err != nil {
			return false, err
		}
	}
	return l.listed[h.id] || !l.ended, nil
}

func (l *look) ensureAll(ctx context.Context, hints []hint) (made int, err error) {
	now := l.queue.clock.Now()
	for _, h := range hints {
		if ctx.Err() != nil {
			return made, ctx.Err()
		}
		if l.listed[h.id] {
			continue
		}
		done, err := l.ensureOne(ctx, h, h.at.After(now))
		if err != nil {
			return made, err
		}
		if done {
			made++
		}
	}
	return made, nil
}

type finding int

const (
	waits finding = iota // the task will run
	made                 // the task was made to run now
	freed                // removed; its id can be used again
	taken                // the task's worker seems to be gone, and no other worker can take the task
)

// ensureOne creates a task, unless an existing one will run. If a lost task occupies the id, ensureOne uses the next id.
func (l *look) ensureOne(ctx context.Context, h hint, notDue bool) (bool, error) {
	for n, tries := 0, 0; n <= maxAgain && tries <= 2*maxAgain; tries++ {
		err := l.queue.put(ctx, h, n)
		if !errors.Is(err, asynq.ErrTaskIDConflict) {
			return err == nil, err
		}
		if notDue {
			return false, nil
		}
		found, err := l.judge(ctx, h, h.name(n))
		switch {
		case err != nil || found == waits:
			return false, err
		case found == made:
			return true, nil
		case found == taken:
			n++
		}
	}
	return false, nil
}

func (l *look) judge(ctx context.Context, h hint, id string) (finding, error) {
	info, err := l.queue.redis.Inspector.GetTaskInfo(l.name, id)
	if err != nil { // gone or damaged
		return freed, l.queue.discard(ctx, l.name, id)
	}
	switch info.State {
	case asynq.TaskStateActive:
		if l.queue.sightings.seenFor(id+" active", stuckActive) {
			return taken, nil
		}
		return waits, nil
	case asynq.TaskStatePending:
		if !l.queue.sightings.seenFor(id+" pending", stuckPending) {
			return waits, nil
		}
		if listed, err := l.isListed(ctx, h); listed || err != nil {
			return waits, err
		}
	case asynq.TaskStateScheduled, asynq.TaskStateRetry, asynq.TaskStateArchived:
		patience := soonEnough
		if info.LastErr == (&job.TaskEarly{}).Error() { // the delivery's handler returns TaskEarly if the endpoint is busy
			patience = busyEnough
		}
		if at := info.NextProcessAt; !at.IsZero() && time.Until(at) < patience {
			return waits, nil
		}
		if l.queue.redis.Inspector.RunTask(l.name, id) == nil {
			return made, nil
		}
	}
	return freed, l.queue.discard(ctx, l.name, id)
}

// sightings remembers when tasks were first seen in a suspicious state.
type sightings struct {
	mu sync.Mutex
	of map[string]sighting
}

type sighting struct{ first, last time.Time }

func (s *sightings) seenFor(what string, d time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	seen, ok := s.of[what]
	if !ok {
		seen.first = now
	}
	seen.last = now
	s.of[what] = seen
	return now.Sub(seen.first) >= d
}

func (s *sightings) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.of, func(_ string, seen sighting) bool { return time.Since(seen.last) > sightingsKept })
}
