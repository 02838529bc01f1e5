package maintenance

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/app"
)

// blockedAfter is how long the rounds of a vital task may fail or hang before the process gives up the lead.
const blockedAfter = 5 * time.Second

// Round does one round of a task. It asks leading before each part of its work, and returns once that is false.
type Round func(ctx context.Context, leading func() bool) error

// task is a round that the leader repeats.
type task struct {
	name     string
	interval time.Duration
	wake     func() <-chan struct{} // its channel starts a round at once; nil for none
	vital    bool                   // jobs or deliveries stop without it: a process that cannot do it should not lead
	run      Round

	mu      sync.Mutex
	sign    time.Time // latest sign of life of the current round; zero between rounds
	failing time.Time // sign of the first failed round since the last success; zero if the last round succeeded
	blocked bool      // at the latest check
}

func (t *task) waking() <-chan struct{} {
	if t.wake == nil {
		return nil
	}
	return t.wake()
}

// alive notes that a round has begun, or finished a part of its work.
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

// tries reports whether the task is tried without the lead, to find out whether the process could lead again.
func (t *task) tries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.vital && !t.failing.IsZero()
}

// judge reports whether the task is blocked, and whether that has changed.
func (t *task) judge(now time.Time) (blocked, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := func(begin time.Time) bool { return !begin.IsZero() && now.Sub(begin) >= blockedAfter }
	blocked = over(t.failing) || over(t.sign)
	changed = blocked != t.blocked
	t.blocked = blocked
	return blocked, changed
}

// repeat runs a task at its interval, and when it is woken, while this process leads. After a failed round, a vital task is tried without
// the lead as well.
func (l *leader) repeat(ctx context.Context, t *task) {
	for wake := t.waking(); l.awaitLead(ctx, t) && app.Rest(ctx, t.interval, wake); {
		wake = t.waking() // before the round: an event during it starts the next one
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
		if err != nil {
			l.log.WarnContext(ctx, "maintenance failed", "action", "maintain", "task", t.name, app.ErrorFields(err))
		}
	}
}

// leadingIn returns the function that a round calls before each part of its work. Each call after the first is a sign of life. Without
// the lead a round tries one part only: all statements are guarded, so it does no harm.
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

// awaitLead waits until this process leads, or the task is to be tried. It reports whether ctx is still open.
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
