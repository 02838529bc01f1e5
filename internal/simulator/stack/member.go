package stack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/process"
)

// member is a process of the service that runs again and again until stop, under the goroutine supervise.
type member struct {
	name, role string
	stack      *Stack

	ctx  context.Context // ends when the member has to
	stop context.CancelFunc
	done chan struct{} // closed when nothing of it runs any more
	err  error         // what was wrong with its end; read after done

	// busy: a fault works on it, and no other one may.
	busy atomic.Bool

	current atomic.Pointer[run] // the latest; nil: none yet

	mu      sync.Mutex
	early   int           // runs in a row that ended before they were ready
	failure error         // why the last of them did
	changed chan struct{} // closed, and replaced, when one of the above changes
}

// run is one run of the program.
type run struct {
	*process.Process
	api   string      // address of the API, "" in the other roles
	admin string      // address of metrics and health
	ready atomic.Bool // it has said so once
}

const (
	// maxEarlyExits in a row are more than an accident, such as a port that somebody else took.
	maxEarlyExits = 5
	// A run this long is a good one: the next begins at once.
	goodRun              = time.Second
	minPause, maxPause   = 50 * time.Millisecond, 2 * time.Second
	exitBadConfiguration = 2
)

// errRefused is for good: no further run will take its configuration either.
var errRefused = errors.New("it refuses its configuration")

// healthClient keeps no connections: it sends few requests, to processes that may be killed at any time.
var healthClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// healthy asks the process whether it can work now.
func (r *run) healthy(ctx context.Context) (bool, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+"/readyz", nil)
	if err != nil {
		return false, err
	}
	answer, err := healthClient.Do(request)
	if err != nil {
		return false, nil // it does not listen yet
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK, nil
}

// supervise starts the process whenever it does not run, with a growing pause while it dies early, until the context
// ends.
func (m *member) supervise() {
	defer close(m.done)
	for pause := time.Duration(0); process.Sleep(m.ctx, pause); {
		began := time.Now()
		good := m.runOnce() && time.Since(began) >= goodRun
		if pause = min(max(2*pause, minPause), maxPause); good {
			pause = 0
		}
	}
}

// runOnce starts the process and waits for its end. It reports whether the process was ever ready.
func (m *member) runOnce() bool {
	r, err := m.launch()
	if err != nil {
		m.note(func() { m.early, m.failure = m.early+1, err })
		return false
	}
	m.current.Store(r)
	ready := r.Await(m.ctx, r.healthy) == nil
	if ready {
		m.stack.log.Info(m.name+" is ready", "pid", r.PID())
		r.ready.Store(true)
		m.note(func() { m.early = 0 })
	}
	select {
	case <-r.Exited():
	case <-m.ctx.Done():
		if err := r.Stop(m.stack.env.stopPatience()); err != nil && (ready || !endedBySignal(err, syscall.SIGTERM)) {
			m.err = fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if !r.IsStopping() {
		m.stack.log.Warn(m.name+" ended although nobody asked for it", "pid", r.PID(), "error", r.ExitReason())
		if !ready {
			m.note(func() { m.early, m.failure = m.early+1, m.explain(r) })
		}
	}
	return ready
}

// endedBySignal reports whether an error says so. A process that has just been started does not handle SIGTERM yet: it ends as any
// program does.
func endedBySignal(err error, signal syscall.Signal) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == signal
}

// launch runs the process on addresses that are free now.
func (m *member) launch() (*run, error) {
	admin, err := devstack.FreeAddress()
	if err != nil {
		return nil, err
	}
	r, own := &run{admin: admin}, []string{"FORGERUN_ADMIN_ADDR=" + admin}
	if m.role == "api" {
		if r.api, err = m.stack.apiAddress(); err != nil {
			return nil, err
		}
		own = append(own, "FORGERUN_HTTP_ADDR="+r.api)
	}
	r.Process, err = process.Start(m.stack.command(m.name, m.role, m.stack.env.list(own...)))
	return r, err
}

func (m *member) explain(r *run) error {
	what := process.ErrExited
	if r.ExitCode() == exitBadConfiguration {
		what = errRefused
	}
	return r.Explain(fmt.Errorf("%s: %w: %w", m.name, what, r.ExitReason()))
}

// note changes what awaitReady looks at.
func (m *member) note(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.changed)
	m.changed = make(chan struct{})
}

// living is the run that is ready for work, as far as is known; nil: none.
func (m *member) living() *run {
	if r := m.current.Load(); r != nil && r.ready.Load() && !r.IsStopping() && !r.HasExited() {
		return r
	}
	return nil
}

// awaitReady waits for a run that is ready. It gives up on a process that refuses its configuration, or never gets
// ready.
func (m *member) awaitReady(ctx context.Context) (*run, error) {
	for {
		m.mu.Lock()
		early, failure, changed := m.early, m.failure, m.changed
		m.mu.Unlock()
		if r := m.living(); r != nil {
			return r, nil
		}
		if early >= maxEarlyExits || early > 0 && errors.Is(failure, errRefused) {
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

// awaitHealthy waits until a run is ready at this moment, or the member was stopped.
func (m *member) awaitHealthy(ctx context.Context) error {
	for {
		r, err := m.awaitReady(ctx)
		switch {
		case m.ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case r.Await(ctx, r.healthy) == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%s is not ready: %w", m.name, context.Cause(ctx))
		}
	}
}

// members are all processes that are wanted now.
func (s *Stack) members() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.apis, s.webhooks, s.workers)
}

// resize starts or drops processes until there are n of a role. The dropped ones still run.
func (s *Stack) resize(all *[]*member, role string, n int) (wanted, dropped []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := min(n, len(*all))
	dropped = (*all)[kept:]
	*all = slices.Clip((*all)[:kept])
	for i := kept; i < n; i++ {
		m := &member{name: fmt.Sprintf("%s-%d", role, i+1), role: role, stack: s, done: make(chan struct{}), changed: make(chan struct{})}
		m.ctx, m.stop = context.WithCancel(s.ctx)
		s.running.Go(m.supervise)
		*all = append(*all, m)
	}
	return *all, dropped
}

func awaitReady(ctx context.Context, members []*member) error {
	for _, m := range members {
		if _, err := m.awaitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopMembers stops all at once and waits for their end, or for that of the context.
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
