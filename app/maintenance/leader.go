package maintenance

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/app"
)

const (
	leaderLease    = 5 * time.Second
	leaderInterval = time.Second
)

// lead keeps trying to get or keep the lease. It is counted from before each
// request, so this side gives up before storage does.
//
// A process in which a vital task is blocked leaves the lease open: it goes on
// with what works, and a process that is not blocked takes over at once. It takes the lease
// itself only when it was free for a whole lease: part of the work done is
// better than none.
func (m *Maintenance) lead(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		lease, vacant := leaderLease, time.Duration(0)
		if m.watch(ctx, asked) {
			lease, vacant = 0, leaderLease
		}
		leads, err := m.deps.Store.Lead(ctx, m.id, lease, vacant)
		if ctx.Err() == nil {
			m.deps.Metrics.Round("leader", time.Since(asked), err)
		}
		switch {
		case err == nil:
			m.setLeading(leads, asked)
		case ctx.Err() == nil:
			m.deps.Log.WarnContext(ctx, "leader election failed", "action", "lead", app.ErrorFields(err))
		}
		if !app.Sleep(ctx, leaderInterval) {
			break
		}
	}
	m.setLeading(false, time.Time{})
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaderInterval)
	defer cancel()
	if err := m.deps.Store.Resign(resigning, m.id); err != nil {
		m.deps.Log.WarnContext(ctx, "cannot resign as leader; the lease will run out", "action", "resign", app.ErrorFields(err))
	}
}

// watch notes which of the vital tasks are blocked, and reports whether any is.
func (m *Maintenance) watch(ctx context.Context, now time.Time) (blocked bool) {
	for _, t := range m.tasks {
		if !t.vital {
			continue
		}
		is, changed := t.judge(now)
		blocked = blocked || is
		if !changed {
			continue
		}
		m.deps.Metrics.Blocked(t.name, is)
		if is {
			m.deps.Log.WarnContext(ctx, "a task of the leader does not get on here; another process may lead", "action", "lead", "task", t.name)
		} else {
			m.deps.Log.InfoContext(ctx, "a task of the leader gets on again", "action", "lead", "task", t.name)
		}
	}
	return blocked
}

// setLeading notes the answer to an election that was asked for at the given
// moment.
func (m *Maintenance) setLeading(leads bool, asked time.Time) {
	until := asked.Add(leaderLease)
	leads = leads && time.Now().Before(until) // an answer may come too late to be of use
	if !leads {
		until = time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leadUntil(until)
	if !leads {
		m.deps.Metrics.ForgetBacklog()
	}
}

// leadUntil notes until when this process leads; the zero time: it does not. The
// caller holds the lock.
func (m *Maintenance) leadUntil(until time.Time) {
	leads, led := !until.IsZero(), !m.ledUntil.IsZero()
	m.ledUntil = until
	m.deps.Metrics.Leads(leads)
	if m.lapse != nil {
		m.lapse.Stop()
	}
	if leads {
		m.lapse = time.AfterFunc(time.Until(until), m.lapsed)
	}
	if leads == led {
		return
	}
	m.deps.Log.Info("leadership changed", "action", "lead", "leading", leads)
	if !leads {
		m.leads = make(chan struct{})
		return
	}
	close(m.leads)
	select {
	case m.elected <- struct{}{}:
	default:
	}
}

// lapsed ends a leadership that was not renewed in time, also while the
// election's answer is still out. What was counted last is shown for a while
// longer: there may be no other process to count anew.
func (m *Maintenance) lapsed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledUntil.IsZero() || time.Now().Before(m.ledUntil) {
		return
	}
	m.leadUntil(time.Time{})
	m.lapse = time.AfterFunc(backlogMemory, m.forget)
}

// forget ends the showing of an old backlog.
func (m *Maintenance) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledUntil.IsZero() {
		m.deps.Metrics.ForgetBacklog()
	}
}
