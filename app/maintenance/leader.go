package maintenance

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

const (
	leaderLease    = 5 * time.Second
	leaderInterval = time.Second
	backlogMemory  = time.Minute // how long the metrics keep the backlog after the lease expired
)

type leader struct {
	id job.ID
	// elect takes or renews the lease, and returns whether this process leads. It takes another process's lease if that lease expired at
	// least `vacant` ago. It also takes a lease that ends much later than a new lease would. Such a lease was written before Postgres'
	// clock was set back. With a `lease` of 0, a leader stays the leader until another process takes over.
	elect   func(ctx context.Context, holder job.ID, lease, vacant time.Duration) (bool, error)
	resign  func(ctx context.Context, holder job.ID) error
	metrics *app.Metrics
	log     *slog.Logger
	tasks   []*task

	mu      sync.Mutex
	until   time.Time     // zero while this process does not lead
	lapse   *time.Timer   // calls `lapsed` when the lease expires, and resets the backlog metrics backlogMemory later
	leads   chan struct{} // closed while this process leads
	elected chan struct{} // receives a value after an election, to count the backlog
}

func newLeader(elect func(context.Context, job.ID, time.Duration, time.Duration) (bool, error),
	resign func(context.Context, job.ID) error, m *app.Metrics, log *slog.Logger,
) *leader {
	return &leader{id: app.NewID(), elect: elect, resign: resign, metrics: m, log: log, leads: make(chan struct{}),
		elected: make(chan struct{}, 1)}
}

func (l *leader) run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { l.lead(ctx) })
	for _, t := range l.tasks {
		loops.Go(func() { l.repeat(ctx, t) })
	}
	loops.Wait()
}

// lead elects a leader every leaderInterval until ctx ends, and then resigns. It counts the lease's duration from a time before the
// request. So this process stops leading before another process can take over.
//
// While a vital task is blocked, the process requests a lease of 0, so any unblocked process may take over. Until then, a blocked leader
// continues to run all its tasks. A blocked process takes over only after leaderLease without a leader.
func (l *leader) lead(ctx context.Context) {
	for ctx.Err() == nil {
		asked := time.Now()
		lease, vacant := leaderLease, time.Duration(0)
		if l.watch(ctx, asked) {
			lease, vacant = 0, leaderLease
		}
		leads, err := l.elect(ctx, l.id, lease, vacant)
		if ctx.Err() == nil {
			l.metrics.Round("leader", time.Since(asked), err)
		}
		switch {
		case err == nil:
			l.setLeading(leads, asked)
		case ctx.Err() == nil:
			l.log.WarnContext(ctx, "leader election failed", "action", "lead", app.ErrorFields(err))
		}
		if !app.Sleep(ctx, leaderInterval) {
			break
		}
	}
	l.setLeading(false, time.Time{})
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaderInterval)
	defer cancel()
	if err := l.resign(resigning, l.id); err != nil {
		l.log.WarnContext(ctx, "cannot give up leadership; the lease will expire", "action", "resign", app.ErrorFields(err))
	}
}

func (l *leader) watch(ctx context.Context, now time.Time) (blocked bool) {
	for _, t := range l.tasks {
		if !t.vital {
			continue
		}
		is, changed := t.judge(now)
		blocked = blocked || is
		if !changed {
			continue
		}
		l.metrics.Blocked(t.name, is)
		if is {
			l.log.WarnContext(ctx, "this process cannot do one of the leader's tasks; another process may become the leader",
				"action", "lead", "task", t.name)
		} else {
			l.log.InfoContext(ctx, "this process can do one of the leader's tasks again", "action", "lead", "task", t.name)
		}
	}
	return blocked
}

func (l *leader) leading() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

func (l *leader) show(b job.Backlog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Now().Before(l.until) {
		l.metrics.Counted(b)
	}
}

func (l *leader) setLeading(leads bool, asked time.Time) {
	until := asked.Add(leaderLease)
	leads = leads && time.Now().Before(until) // the lease may have expired before the result of the election arrived
	if !leads {
		until = time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leadUntil(until)
	if !leads {
		l.metrics.ForgetBacklog()
	}
}

// leadUntil begins or extends the leadership. A zero `until` ends it. The caller holds l.mu.
func (l *leader) leadUntil(until time.Time) {
	leads, led := !until.IsZero(), !l.until.IsZero()
	l.until = until
	l.metrics.Leads(leads)
	if l.lapse != nil {
		l.lapse.Stop()
	}
	if leads {
		l.lapse = time.AfterFunc(time.Until(until), l.lapsed)
	}
	if leads == led {
		return
	}
	l.log.Info("leadership changed", "action", "lead", "leading", leads, "leader_id", l.id.String())
	if !leads {
		l.leads = make(chan struct{})
		return
	}
	close(l.leads)
	select {
	case l.elected <- struct{}{}:
	default:
	}
}

// lapsed ends the leadership when the lease expires. It is called by a timer, so it works even while an election hangs. The metrics keep
// the last backlog for a minute, because there may be no other leader to count the backlog.
func (l *leader) lapsed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until.IsZero() || time.Now().Before(l.until) {
		return
	}
	l.leadUntil(time.Time{})
	l.lapse = time.AfterFunc(backlogMemory, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.until.IsZero() {
			l.metrics.ForgetBacklog()
		}
	})
}
