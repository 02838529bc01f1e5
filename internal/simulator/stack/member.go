package stack

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// member is a process of the service that has to run: one run after another,
// until stop. Its goroutine is supervise.
type member struct {
	name, role string
	stack      *Stack

	ctx  context.Context // ends when the member has to
	stop context.CancelFunc
	done chan struct{} // closed when nothing of it runs any more
	err  error         // what was wrong with its end; read after done

	// busy: a fault works on it, and no other one may.
	busy atomic.Bool

	mu      sync.Mutex
	current *process      // the latest run; nil: none yet
	early   int           // runs in a row that ended before they were ready
	failure error         // why the last of them did
	changed chan struct{} // closed, and replaced, when one of the above changes
}

const (
	// earlyEnds in a row are taken for more than an accident, such as a port that
	// somebody else took.
	earlyEnds = 5
	// A run this long is a good one: the next begins at once.
	goodRun              = time.Second
	minPause, maxPause   = 50 * time.Millisecond, 2 * time.Second
	exitBadConfiguration = 2
)

var (
	errNeverReady = errors.New("it ended before it was ready")
	// errRefused is for good: no further run will take its configuration either.
	errRefused = errors.New("it refuses its configuration")
)

func newMember(ctx context.Context, name, role string, s *Stack) *member {
	m := &member{name: name, role: role, stack: s, done: make(chan struct{}), changed: make(chan struct{})}
	m.ctx, m.stop = context.WithCancel(ctx)
	return m
}

// supervise starts the process whenever it does not run, with a growing pause
// if it dies again and again, until the member's context ends.
func (m *member) supervise() {
	defer close(m.done)
	var pause time.Duration
	for m.ctx.Err() == nil {
		began := time.Now()
		good := m.runOnce() && time.Since(began) >= goodRun
		if pause = min(max(2*pause, minPause), maxPause); good {
			pause = 0
		}
		select {
		case <-m.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// runOnce sees one run through to its end, and reports whether it was ever
// ready.
func (m *member) runOnce() bool {
	p, err := m.launch()
	if err != nil {
		m.note(func() { m.early, m.failure = m.early+1, err })
		return false
	}
	m.note(func() { m.current = p })
	ready := p.awaitHealthy(m.ctx)
	if ready {
		m.stack.log.Info(m.name+" is ready", "pid", p.cmd.Process.Pid)
		p.ready.Store(true)
		m.note(func() { m.early = 0 })
	}
	select {
	case <-p.exited:
	case <-m.ctx.Done():
		if err := p.terminate(m.stack.env.stopPatience()); err != nil {
			m.err = fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if !p.asked.Load() {
		m.stack.log.Warn(m.name+" ended although nobody asked for it", "pid", p.cmd.Process.Pid, "error", p.failure())
	}
	m.note(func() {
		if !ready && !p.asked.Load() {
			m.early, m.failure = m.early+1, m.explain(p)
		}
	})
	return ready
}

// launch runs the process on addresses that are free now.
func (m *member) launch() (*process, error) {
	admin, err := freeAddress()
	if err != nil {
		return nil, err
	}
	own := []string{"FORGERUN_ADMIN_ADDR=" + admin}
	api := ""
	if m.role == "api" {
		if api, err = m.stack.apiAddress(); err != nil {
			return nil, err
		}
		own = append(own, "FORGERUN_HTTP_ADDR="+api)
	}
	p, err := run(m.stack.o.Forgerun, m.log(), m.stack.env.list(own...), m.role)
	if err != nil {
		return nil, err
	}
	p.admin, p.api = admin, api
	return p, nil
}

func (m *member) log() string { return filepath.Join(m.stack.logDir(), m.name+".log") }

func (m *member) explain(p *process) error {
	what := errNeverReady
	if p.exitCode() == exitBadConfiguration {
		what = errRefused
	}
	return fmt.Errorf("%s: %w: %w; the last lines of %s:\n  | %s", m.name, what, p.failure(), m.log(), lastLines(m.log()))
}

// note changes what await looks at.
func (m *member) note(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.changed)
	m.changed = make(chan struct{})
}

// living is the run that is ready for work, as far as is known; nil: none.
func (m *member) living() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.livingNow()
}

func (m *member) livingNow() *process {
	if p := m.current; p != nil && p.ready.Load() && !p.asked.Load() && !p.hasExited() {
		return p
	}
	return nil
}

// awaitReady waits for a run that is ready. It gives up on a process that
// refuses its configuration, or never gets ready.
func (m *member) awaitReady(ctx context.Context) (*process, error) {
	for {
		m.mu.Lock()
		p, early, failure, changed := m.livingNow(), m.early, m.failure, m.changed
		m.mu.Unlock()
		if p != nil {
			return p, nil
		}
		if early >= earlyEnds || early > 0 && errors.Is(failure, errRefused) {
			return nil, failure
		}
		select {
		case <-changed:
		case <-m.done:
			return nil, fmt.Errorf("%s was stopped", m.name)
		case <-ctx.Done():
			return nil, fmt.Errorf("%s is not ready: %w", m.name, context.Cause(ctx))
		}
	}
}

// awaitHealthy waits until a run says that it is ready, now. A member that was
// stopped meanwhile needs no health.
func (m *member) awaitHealthy(ctx context.Context) error {
	for {
		p, err := m.awaitReady(ctx)
		switch {
		case m.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case p.awaitHealthy(ctx):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s is not ready: %w", m.name, context.Cause(ctx))
		}
	}
}

// resume continues a paused run.
func (m *member) resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		m.current.resume()
	}
}

func awaitReady(ctx context.Context, members []*member) error {
	for _, m := range members {
		if _, err := m.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopMembers stops all at once and returns when they have ended. When the
// context ends before, they end without being waited for.
func stopMembers(ctx context.Context, members []*member) error {
	for _, m := range members {
		m.stop()
	}
	var errs []error
	for _, m := range members {
		select {
		case <-m.done:
			errs = append(errs, m.err)
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("%s has not ended: %w", m.name, context.Cause(ctx)))...)
		}
	}
	return errors.Join(errs...)
}
