package maintenance

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/app"
)

// blockedAfter is for how long the rounds of a vital task fail, or one hangs,
// until the process lets others lead.
const blockedAfter = 5 * time.Second

// Round does one round of a task. It asks leading before each part of its work, and returns once that is false.
type Round func(ctx context.Context, leading func() bool) error

// task is a round that the leader repeats.
type task struct {
	name     string
	interval time.Duration
	wake     func() <-chan struct{} // its channel starts a round at once; nil for none
	vital    bool                   // without it jobs or deliveries stop: who cannot do it should not lead
	run      Round

	mu      sync.Mutex
	sign    time.Time // when the round that is under way began, or got on last; zero between rounds
	failing time.Time // when that was of the first of the rounds that failed since one went well; zero if the last one did
	blocked bool      // what judge found last
}

func (t *task) waking() <-chan struct{} {
	if t.wake == nil {
		return nil
	}
	return t.wake()
}

// gotOn notes that a round has begun, or done a part of its work.
func (t *task) gotOn() {
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

// tries reports whether the task is to be tried although this process does not
// lead: only so does it find out that it could.
func (t *task) tries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.vital && !t.failing.IsZero()
}

// judge reports whether the task is blocked, and whether that is news.
func (t *task) judge(now time.Time) (blocked, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	blocked = since(t.failing, now) >= blockedAfter || since(t.sign, now) >= blockedAfter
	changed = blocked != t.blocked
	t.blocked = blocked
	return blocked, changed
}

// since is 0 for the zero time.
func since(then, now time.Time) time.Duration {
	if then.IsZero() {
		return 0
	}
	return now.Sub(then)
}

// repeat runs a task at its interval while this process leads, and when the task is
// woken. A vital one whose last round failed is tried on without the lead.
func (l *leader) repeat(ctx context.Context, t *task) {
	for wake := t.waking(); l.awaitLead(ctx, t) && app.Rest(ctx, t.interval, wake); {
		wake = t.waking() // before the round: what happens during it starts the next one
		if !l.leading() && !t.tries() {
			continue
		}
		began := time.Now()
		t.gotOn()
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

// leadingIn is what a round asks before each part of its work. Later parts show
// that it got on. Without the lead it is a trial of one part; all statements
// are guarded, so that does no harm beside the leader's.
func (l *leader) leadingIn(t *task) func() bool {
	var asked atomic.Bool
	return func() bool {
		if asked.Swap(true) {
			t.gotOn()
			return l.leading()
		}
		return l.leading() || t.tries()
	}
}

// awaitLead waits until this process leads, or the task is to be tried: one that
// has nothing to do is not woken several times a second. It reports whether ctx goes on.
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
