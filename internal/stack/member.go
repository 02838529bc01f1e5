package stack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
)

// member is a process of the service, such as worker-1. A goroutine runs the method supervise, which restarts the process until the
// function `stop` is called.
type member struct {
	unit
	api, admin string // listen addresses: `api` for the API ("" for other roles), `admin` for metrics and health checks
	stop       context.CancelFunc
	done       chan struct{} // closed when the process has ended and will not be started again
	err        error         // error of the final stop; read it only after done is closed
	took       time.Duration // time from SIGTERM to the end of the process; read it only after done is closed
}

// StartRole starts the program in a role, and returns when the process is ready. `api` and `admin` are listen addresses; `api` is "" for
// roles that do not serve the API. If the process does not become ready, StartRole stops it. `grace` limits the time for this stop.
func StartRole(ctx context.Context, c Command, role, api, admin string, grace time.Duration) (*Process, error) {
	c.Args, c.Env = []string{role}, append(slices.Clip(c.Env), "FORGERUN_ADMIN_ADDR="+admin)
	if api != "" {
		c.Env = append(c.Env, "FORGERUN_HTTP_ADDR="+api)
	}
	p, err := StartProcess(c)
	if err != nil {
		return nil, err
	}
	err = p.awaitOrEnd(ctx, healthy(admin), syscall.SIGTERM, grace)
	const exitBadConfiguration = 2
	if err != nil && p.HasExited() && p.cmd.ProcessState.ExitCode() == exitBadConfiguration {
		err = fmt.Errorf("%w: %w", errRefused, err)
	}
	return p, err
}

// healthClient keeps no idle connections, because the process at the other end may be killed at any time.
var healthClient = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

func healthy(admin string) readiness {
	return func(ctx context.Context, _ int) bool {
		request, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil) // fails only for a bad address
		answer, err := healthClient.Do(request)
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	}
}

func (s *Stack) newMember(role string, number int) *member {
	m := &member{done: make(chan struct{})}
	name := fmt.Sprintf("%s-%d", role, number)
	admin, err := FreeAddress()
	if role == "api" {
		m.api = strings.TrimPrefix(s.URL, "http://")
		if s.o.Faults { // a proxy listens at s.URL, so the api process needs another address
			var noAPI error
			m.api, noAPI = FreeAddress()
			err = errors.Join(err, noAPI)
		}
	}
	m.admin = admin
	m.unit = unit{name: name, log: s.log, ready: healthy(admin), freed: func() {}, gate: semaphore.NewWeighted(1)}
	m.ctx, m.stop = context.WithCancel(s.ctx)
	m.begin = func(ctx context.Context) (*Process, error) {
		if err != nil {
			return nil, err
		}
		return StartRole(ctx, s.command(name, s.env), role, m.api, admin, s.env.stopPatience())
	}
	return m
}

func (m *member) supervise(patience time.Duration) {
	defer close(m.done)
	m.keep()
	if p := m.current.Load(); !p.HasExited() {
		asked := time.Now()
		if err := p.Stop(patience); err != nil {
			m.err = fmt.Errorf("%s: %w", m.name, err)
		}
		m.took = time.Since(asked)
	}
}

// down stops the process. It first acquires the gate, so that the process is not started again. The caller must release the gate.
func (m *member) down(patience time.Duration) error {
	_ = m.gate.Acquire(context.Background(), 1) // if the process is being started, this waits for the end of the start
	return m.current.Load().Stop(patience)
}

// resize starts members or removes the last ones, until the slice *all has n members. It returns the members in the slice and the removed
// ones, which the caller must stop.
func (s *Stack) resize(all *[]*member, role string, n int) (wanted, dropped []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := min(n, len(*all))
	dropped = (*all)[kept:]
	*all = slices.Clip((*all)[:kept])
	for i := kept; i < n; i++ {
		m := s.newMember(role, i+1)
		s.running.Go(func() { m.supervise(s.env.stopPatience()) })
		*all = append(*all, m)
	}
	return *all, dropped
}

// awaitReady waits until all members are ready. It ignores members that Scale removes during the wait.
func awaitReady(ctx context.Context, members []*member) error {
	for _, m := range members {
		if err := m.awaitReady(ctx); err != nil && (ctx.Err() != nil || m.ctx.Err() == nil) {
			return err
		}
	}
	return nil
}

func (s *Stack) stopMembers(ctx context.Context, members []*member) error {
	for _, m := range members {
		m.stop()
	}
	var errs []error
	for _, m := range members {
		select {
		case <-m.done:
			errs = append(errs, m.err)
			s.mu.Lock()
			s.scaling = Scaling{s.scaling.Stopped + 1, max(s.scaling.Slowest, m.took)}
			s.mu.Unlock()
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("waiting for %s to stop: %w", m.name, context.Cause(ctx)))...)
		}
	}
	return errors.Join(errs...)
}

// dialAPI connects to an api process. It tries all processes, and begins with another process on each call. If no process accepts the
// connection, dialAPI repeats this until dialPatience is over.
func (s *Stack) dialAPI(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialPatience)
	defer cancel()
	for {
		s.mu.Lock()
		apis := s.apis
		s.mu.Unlock()
		first := s.next.Add(1)
		for i := range apis {
			if m := apis[(first+uint64(i))%uint64(len(apis))]; m.living() != nil {
				if conn, err := new(net.Dialer).DialContext(ctx, "tcp4", m.api); err == nil {
					return conn, nil
				}
			}
		}
		if !Sleep(ctx, retryPeriod) {
			return nil, context.Cause(ctx)
		}
	}
}
