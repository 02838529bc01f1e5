package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// startTimeout bounds a start whose context sets no earlier end. It covers
	// the recovery of a crashed cluster on a slow disk.
	startTimeout = 60 * time.Second
	// portTries bounds how often a start chooses another port because somebody
	// took the first between choosing and binding.
	portTries = 10
	killGrace = 10 * time.Second
)

var (
	errExited = errors.New("it ended before it was ready")
	// errPortTaken: the port was taken when the server tried to bind it.
	errPortTaken = errors.New("the port is in use")
	// errDataBusy: backends of a killed Postgres are still finishing.
	errDataBusy = errors.New("processes of a former server still use the data folder")
)

// program is what differs between the servers.
type program interface {
	// prepare makes the data ready. No server runs on it meanwhile.
	prepare(ctx context.Context) error
	// command tells how to run the server on the port.
	command(port int) command
	// ready reports whether the process pid serves the port: it, not another.
	ready(ctx context.Context, pid, port int) (bool, error)
	// orphan returns the process of an earlier server that still runs on this
	// very folder.
	orphan(ctx context.Context) (pid int, found bool)
}

// server is one program with its folder and port, running or not. Its methods
// may be called from several goroutines.
type server struct {
	name    string
	home    *home
	program program
	log     *slog.Logger

	op      sync.Mutex // one start or stop at a time
	port    int
	reserve reservedPort
	// fixed: the caller chose the port, or the server has already run on it.
	fixed bool

	current atomic.Pointer[process] // nil: not running
}

// start runs the server and returns when it serves. It does nothing when the
// server already runs.
func (s *server) start(ctx context.Context) error {
	s.op.Lock()
	defer s.op.Unlock()
	if p := s.current.Load(); p != nil {
		if !p.hasExited() {
			return nil
		}
		s.forget()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	if err := s.home.acquire(); err != nil {
		return fmt.Errorf("devstack: starting %s: %w", s.name, err)
	}
	if err := s.launch(ctx); err != nil {
		s.home.release()
		return fmt.Errorf("devstack: starting %s: %w", s.name, err)
	}
	return nil
}

func (s *server) launch(ctx context.Context) error {
	if err := s.endOrphan(ctx); err != nil {
		return err
	}
	if err := s.program.prepare(ctx); err != nil {
		return err
	}
	for tries := 1; ; {
		err := s.choosePort()
		if err == nil {
			err = s.attempt(ctx)
		}
		switch {
		case errors.Is(err, errPortTaken) && !s.fixed && tries < portTries:
			tries++
			s.reserve.release()
			s.port = 0
		case errors.Is(err, errDataBusy) && pause(ctx, 5*pollPeriod):
		default:
			return err
		}
	}
}

func (s *server) choosePort() error {
	if s.port != 0 {
		return nil
	}
	reserve, err := reservePort()
	if err != nil {
		return err
	}
	s.reserve, s.port = reserve, reserve.number
	return nil
}

// attempt runs the server once on the chosen port.
func (s *server) attempt(ctx context.Context) error {
	if err := s.home.writePort(s.port); err != nil {
		return err
	}
	began := time.Now()
	c := s.program.command(s.port)
	p, err := c.run()
	if err != nil {
		return err
	}
	err = p.await(ctx, func(ctx context.Context) (bool, error) {
		return s.program.ready(ctx, p.pid(), s.port)
	})
	if err != nil {
		_ = p.end(step{c.deathSignal, killGrace}, step{syscall.SIGKILL, killGrace})
		output := p.output()
		return p.log.explain(classify(err, output, s.port), output)
	}
	s.fixed = true
	s.current.Store(p)
	go s.reportExit(p)
	s.log.Info(s.name+" is ready", "port", s.port, "pid", p.pid(), "folder", s.home.dir,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// classify recognises the failures of a start that another attempt cures. The
// servers print untranslated messages; see childEnv.
func classify(err error, output string, port int) error {
	switch {
	case !errors.Is(err, errExited):
		return err
	case strings.Contains(output, "Address already in use"):
		return fmt.Errorf("%w: %d: %w", errPortTaken, port, err)
	case strings.Contains(output, "pre-existing shared memory block"):
		return fmt.Errorf("%w: %w", errDataBusy, err)
	default:
		return err
	}
}

// reportExit ends with the process.
func (s *server) reportExit(p *process) {
	<-p.exited
	if !p.ended.Load() {
		err := p.log.explain(p.exitReason(), p.output())
		s.log.Error(s.name+" ended although nobody stopped it", "pid", p.pid(), "action", "watch_server", "error_message", err.Error())
	}
}

// stop ends the server by the given steps. It does nothing when the server does
// not run.
func (s *server) stop(steps ...step) error {
	s.op.Lock()
	defer s.op.Unlock()
	p := s.current.Load()
	if p == nil {
		return nil
	}
	err := p.end(append(steps, step{syscall.SIGKILL, killGrace})...)
	if p.hasExited() {
		s.forget()
	}
	return err
}

func (s *server) forget() {
	s.current.Store(nil)
	s.home.release()
}

func (s *server) signal(sig syscall.Signal) error {
	p := s.current.Load()
	if p == nil {
		return errNotRunning
	}
	return p.signal(sig)
}

func (s *server) pid() int {
	p := s.current.Load()
	if p == nil || p.hasExited() {
		return 0
	}
	return p.pid()
}

// endOrphan stops a server that outlived its parent: gently first.
func (s *server) endOrphan(ctx context.Context) error {
	// SIGINT is an orderly end to both servers; SIGTERM would make Postgres wait
	// for its clients.
	steps := []step{{syscall.SIGINT, 5 * time.Second}, {syscall.SIGQUIT, 6 * time.Second}, {syscall.SIGKILL, killGrace}}
	for _, st := range steps {
		pid, found := s.program.orphan(ctx)
		if !found {
			return nil
		}
		s.log.Warn("stopping a "+s.name+" that a former parent left behind", "pid", pid, "signal", st.signal.String())
		if err := syscall.Kill(pid, st.signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("stopping the former %s, process %d: %w", s.name, pid, err)
		}
		_ = syscall.Kill(pid, syscall.SIGCONT)
		for deadline := time.Now().Add(st.grace); time.Now().Before(deadline); {
			// Its command line goes before its port and its files do.
			if isGone(pid) {
				return nil
			}
			if !pause(ctx, pollPeriod) {
				return context.Cause(ctx)
			}
		}
	}
	return fmt.Errorf("the former %s does not end", s.name)
}

// pause waits and reports whether the context is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
