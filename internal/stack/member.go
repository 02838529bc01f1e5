package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// member is a process of the service that runs again and again until stop, under the goroutine supervise.
type member struct {
	name, role string
	stack      *Stack

	ctx  context.Context // ends when the member has to
	stop context.CancelFunc
	done chan struct{} // closed when nothing of it runs any more
	err  error         // what was wrong with its end; read after done
	took time.Duration // from SIGTERM to its end; read after done

	busy    atomic.Bool           // a fault works on it, and no other one may
	current atomic.Pointer[Role]  // the latest; nil: none yet
	failure atomic.Pointer[error] // why it does not get ready; nil: it may
}

// Role is a process of the service in one of its roles.
type Role struct {
	*Process
	api   string      // address of the API, "" in the other roles
	admin string      // address of metrics and health
	ready atomic.Bool // it has said so once
}

// StartRole runs the program in a role, on a free address of the admin listener. api is the address of the API, "" in the other
// roles.
func StartRole(c Command, role, api string) (*Role, error) {
	admin, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	c.Args, c.Env = []string{role}, append(slices.Clip(c.Env), "FORGERUN_ADMIN_ADDR="+admin)
	if api != "" {
		c.Env = append(c.Env, "FORGERUN_HTTP_ADDR="+api)
	}
	p, err := StartProcess(c)
	return &Role{Process: p, api: api, admin: admin}, err
}

// AwaitReady waits until the process can work. Errors are those of Await.
func (r *Role) AwaitReady(ctx context.Context) error {
	err := r.Await(ctx, r.healthy)
	if err == nil {
		r.ready.Store(true)
	}
	return err
}

const (
	// maxEarlyExits in a row are more than an accident, such as a port that is taken meanwhile.
	maxEarlyExits = 5
	// earlyPause follows an early end, as often as there were some in a row.
	earlyPause, maxPause = 200 * time.Millisecond, 2 * time.Second
	exitBadConfiguration = 2
)

// errRefused is for good: no further run will take its configuration either.
var errRefused = errors.New("it refuses its configuration")

// healthClient keeps no connections: it sends few requests, to processes that may be killed at any time.
var healthClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// healthy asks the process whether it can work now.
func (r *Role) healthy(ctx context.Context) bool {
	request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.admin+"/readyz", nil) // fails for bad addresses only
	answer, err := healthClient.Do(request)
	if err != nil {
		return false // it does not listen yet
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// supervise starts the process whenever it does not run, with a growing pause while it dies early, until the context
// ends.
func (m *member) supervise() {
	defer close(m.done)
	for early := 0; Sleep(m.ctx, min(time.Duration(early)*earlyPause, maxPause)); {
		ready, err := m.runOnce()
		if ready {
			early = 0
		} else if err != nil {
			if early++; early >= maxEarlyExits || errors.Is(err, errRefused) {
				m.failure.Store(&err)
			}
		}
	}
}

// runOnce starts the process and waits for its end. It reports whether the process was ever ready, and why it ended before
// unless it was asked to.
func (m *member) runOnce() (ready bool, err error) {
	r, err := m.launch()
	if err != nil {
		return false, err
	}
	m.current.Store(r)
	if ready = r.AwaitReady(m.ctx) == nil; ready {
		m.stack.log.Info(m.name+" is ready", "pid", r.PID())
		m.failure.Store(nil)
	}
	select {
	case <-r.exited:
	case <-m.ctx.Done():
		asked := time.Now()
		defer func() { m.took = time.Since(asked) }()
		if err := r.Stop(m.stack.env.stopPatience()); err != nil && (ready || !r.endedBy(syscall.SIGTERM)) {
			m.err = fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if r.stopping.Load() {
		return ready, nil
	}
	m.stack.log.Warn(m.name+" ended unexpectedly", "pid", r.PID(), "error", r.exitReason())
	what := ErrExited
	if r.cmd.ProcessState.ExitCode() == exitBadConfiguration {
		what = errRefused
	}
	return ready, r.Explain(fmt.Errorf("%s: %w: %w", m.name, what, r.exitReason()))
}

// endedBy reports whether a signal has ended the process. One that has just been started does not handle SIGTERM yet: it ends as
// any program does.
func (p *Process) endedBy(s syscall.Signal) bool {
	if !p.HasExited() {
		return false
	}
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == s
}

// launch runs the process on addresses that are free now.
func (m *member) launch() (*Role, error) {
	m.stack.starts.RLock()
	defer m.stack.starts.RUnlock()
	api := ""
	if m.role == "api" {
		api = strings.TrimPrefix(m.stack.url, "http://")
		if m.stack.o.Faults { // that is a proxy's
			var err error
			if api, err = FreeAddress(); err != nil {
				return nil, err
			}
		}
	}
	return StartRole(m.stack.command(m.name, m.stack.env), m.role, api)
}

// command is what all processes have in common.
func (s *Stack) command(name string, env environ) Command {
	return Command{Path: s.o.Forgerun, Env: env.list(), DeathSignal: syscall.SIGKILL, Log: s.logOf(name)}
}

// living is the run that is ready for work, as far as is known; nil: none.
func (m *member) living() *Role {
	if r := m.current.Load(); r != nil && r.ready.Load() && !r.stopping.Load() && !r.HasExited() {
		return r
	}
	return nil
}

// awaitReady waits for a run that can work at this moment. It gives up on a process that refuses its configuration, or never
// gets ready.
func (m *member) awaitReady(ctx context.Context) error {
	for {
		r, failure := m.living(), m.failure.Load()
		switch {
		case r != nil && r.healthy(ctx):
			return nil
		case r == nil && failure != nil:
			return *failure
		}
		select {
		case <-time.After(pollPeriod):
		case <-m.done:
			return fmt.Errorf("%s was stopped", m.name)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w", m.name, context.Cause(ctx))
		}
	}
}

// members are all processes that are wanted now.
func (s *Stack) members() []*member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Concat(s.apis, s.deliverers, s.workers)
}

// resize starts or drops processes until there are n of a role. The dropped ones still run.
func (s *Stack) resize(all *[]*member, role string, n int) (wanted, dropped []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := min(n, len(*all))
	dropped = (*all)[kept:]
	*all = slices.Clip((*all)[:kept])
	for i := kept; i < n; i++ {
		m := &member{name: fmt.Sprintf("%s-%d", role, i+1), role: role, stack: s, done: make(chan struct{})}
		m.ctx, m.stop = context.WithCancel(s.ctx)
		s.running.Go(m.supervise)
		*all = append(*all, m)
	}
	return *all, dropped
}

func awaitReady(ctx context.Context, members []*member) error {
	for _, m := range members {
		if err := m.awaitReady(ctx); err != nil {
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
			m.stack.noteStop(m.took)
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("%s has not ended: %w", m.name, context.Cause(ctx)))...)
		}
	}
	return errors.Join(errs...)
}

// dialAPI connects to the running api processes one after the other, and waits a moment for one if there is none.
func (s *Stack) dialAPI(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	var dialer net.Dialer
	for {
		s.mu.Lock()
		apis := s.apis
		s.mu.Unlock()
		first := s.next.Add(1)
		for i := range apis {
			if r := apis[(first+uint64(i))%uint64(len(apis))].living(); r != nil {
				if conn, err := dialer.DialContext(ctx, "tcp4", r.api); err == nil {
					return conn, nil
				}
			}
		}
		if !Sleep(ctx, retryPeriod) {
			return nil, context.Cause(ctx)
		}
	}
}

// Schedule says how many workers there are over a run: equal steps.
type Schedule struct{ steps []int }

// ParseWorkers reads "4" (always), "1..8" (a ramp over the run, up or down) or "1,4,2" (equal steps).
func ParseWorkers(text string) (Schedule, error) {
	counts := strings.Split(text, ",")
	first, last, isRamp := strings.Cut(text, "..")
	if isRamp {
		counts = []string{first, last}
	}
	var s Schedule
	for i, count := range counts {
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 1 || n > maxWorkers {
			return Schedule{}, fmt.Errorf("workers %q: %q is not a number from 1 to %d; allowed are a number (4), a ramp (1..8) and steps (1,4,2)",
				text, count, maxWorkers)
		}
		if !isRamp || i == 0 {
			s.steps = append(s.steps, n)
			continue
		}
		for at := s.steps[0]; at != n; {
			at += cmp.Compare(n, at)
			s.steps = append(s.steps, at)
		}
	}
	return s, nil
}

// At is the number of workers when the share (0 to 1) of the run is over.
func (s Schedule) At(share float64) int {
	if len(s.steps) == 0 {
		return 1
	}
	i := int(share * float64(len(s.steps)))
	return s.steps[min(max(i, 0), len(s.steps)-1)]
}
