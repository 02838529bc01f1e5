package maintenance

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/forgerun/forgerun/app"
)

// After a vital task has failed or hung for blockedAfter, the leader lets other processes take over.
const blockedAfter = 5 * time.Second

// warnInterval is the minimum time between warnings about a task that keeps failing.
const warnInterval = 10 * time.Second

// Round is one run of a task that repeats. It calls `leading` before each part of its work, and returns if the result is false.
type Round func(ctx context.Context, leading func() bool) error

type task struct {
	name     string
	interval time.Duration
	wake     func() <-chan struct{} // may be nil; a value in the returned channel starts a round at once
	vital    bool                   // without this task, jobs or deliveries stop
	run      Round

	mu      sync.Mutex
	sign    time.Time // last sign of progress in the current round; zero between rounds
	failing time.Time // value of `sign` in the first failed round after a success; zero after a success
	blocked bool
}

func (t *task) waking() <-chan struct{} {
	if t.wake == nil {
		return nil
	}
	return t.wake()
}

func (t *task) alive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sign = time.Now()
}

func (t *task) ended(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err == nil:
		t.failing = time.Time{}
	case t.failing.IsZero():
		t.failing = t.sign
	}
	t.sign = time.Time{}
}

// tries reports whether the task also runs without the leadership. This is true for a vital task after a failed round, to find out when
// the task works again.
func (t *task) tries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.vital && !t.failing.IsZero()
}

func (t *task) judge(now time.Time) (blocked, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := func(begin time.Time) bool { return !begin.IsZero() && now.Sub(begin) >= blockedAfter }
	blocked = over(t.failing) || over(t.sign)
	changed = blocked != t.blocked
	t.blocked = blocked
	return blocked, changed
}

// repeat runs the task's rounds while this process leads. Without the leadership, it runs only a vital task that is failing.
func (l *leader) repeat(ctx context.Context, t *task) {
	warn := &rate.Sometimes{Interval: warnInterval}
	for wake := t.waking(); l.awaitLead(ctx, t) && app.Rest(ctx, t.interval, wake); {
		wake = t.waking() // taken before the round, so that an event during the round starts the next one
		if !l.leading() && !t.tries() {
			continue
		}
		began := time.Now()
		t.alive()
		err := t.run(ctx, l.leadingIn(t))
		if ctx.Err() != nil {
			return
		}
		t.ended(err)
		l.metrics.Round(t.name, time.Since(began), err)
		if err == nil {
			warn = &rate.Sometimes{Interval: warnInterval}
			continue
		}
		warn.Do(func() {
			l.log.WarnContext(ctx, "maintenance failed", "action", "maintain", "task", t.name, app.ErrorFields(err))
		})
	}
}

// leadingIn returns the function that a round calls before each part of its work. Each call except the first is a sign of progress. A
// round that t.tries allows without the leadership does only one part. This is safe, because all statements check the state of the rows
// that they change.
func (l *leader) leadingIn(t *task) func() bool {
	var asked atomic.Bool
	return func() bool {
		if asked.Swap(true) {
			t.alive()
			return l.leading()
		}
		return l.leading() || t.tries()
	}
}

// awaitLead waits until this process leads, unless t.tries allows a round without the leadership. It returns false if ctx ends.
func (l *leader) awaitLead(ctx context.Context, t *task) bool {
	if t.tries() {
		return ctx.Err() == nil
	}
	l.mu.Lock()
	leads := l.leads
	l.mu.Unlock()
	select {
	case <-leads:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
