package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	pollPeriod = 10 * time.Millisecond
	// killGrace is how long a killed process may take to be gone.
	killGrace = 10 * time.Second
)

var (
	// ErrNotRunning is the error of signals to a process that has ended, or was never started.
	ErrNotRunning = errors.New("the process is not running")
	// ErrExited is wrapped by the error of Await when the process ends meanwhile.
	ErrExited = errors.New("ended before it was ready")
)

// Command says how to run a program. It has a process group of its own: Ctrl-C at a terminal reaches only the parent, which
// then stops its children in order, and a kill also reaches what the child has started.
type Command struct {
	Path  string
	Args  []string    // without the program's name
	Env   []string    // nil: as this process
	Dir   string      // working folder, which User must be able to enter; "": as this process
	User  *Credential // nil: as this process
	Input io.Reader   // nil: none
	Log   string      // file that what it prints is appended to
	// DeathSignal is sent to the child by the kernel when this process dies, however it dies (Linux only); 0: none.
	DeathSignal syscall.Signal
}

// Process is one run of a command. Its methods may be called from several goroutines. A nil Process is one that was never
// started: it takes no signal, and ending it does nothing.
type Process struct {
	cmd    *exec.Cmd
	log    string
	offset int64 // where this run's output begins in the log

	term     sync.Once   // SIGTERM is sent once: programs take a second one for "at once"
	stopping atomic.Bool // its end was requested
	killed   atomic.Bool
	exited   chan struct{} // closed when the process is gone and reaped
	err      error         // how it ended, valid once exited is closed
}

// StartProcess runs the command.
func StartProcess(c Command) (*Process, error) {
	out, offset, err := openLog(c.Log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	p := &Process{cmd: exec.Command(c.Path, c.Args...), log: c.Log, offset: offset, exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdin = c.Dir, c.Env, c.Input
	p.cmd.Stdout, p.cmd.Stderr = out, out
	runAs(p.cmd, c.User, c.DeathSignal)
	OwnGroup(p.cmd)
	started := make(chan error, 1)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Path, err)
	}
	return p, nil
}

// RunProcess runs the command to its end, and kills it when the context ends before. Any end but exit status 0 is an error,
// which holds the last lines of the log.
func RunProcess(ctx context.Context, c Command) error {
	p, err := StartProcess(c)
	if err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.Kill()
		return context.Cause(ctx)
	}
	if p.err != nil {
		return p.Explain(p.err)
	}
	return nil
}

// own starts the process and waits for its end on one thread. "Parent" means the starting thread to the kernel: were it to
// end before the child, the child would get its death signal. A locked goroutine keeps the thread alive.
func (p *Process) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
		close(p.exited)
	}
}

// PID is the id of the process; 0 if it was never started.
func (p *Process) PID() int {
	if p == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// HasExited reports whether the process is gone.
func (p *Process) HasExited() bool {
	if p == nil {
		return true
	}
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// exitReason waits for the end of a process that should still be running, and says how it ended. It is never nil.
func (p *Process) exitReason() error {
	if <-p.exited; p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// signal sends a signal to the process alone, not to its group.
func (p *Process) signal(s syscall.Signal) error {
	if p == nil {
		return ErrNotRunning
	}
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return ErrNotRunning
	}
	return err
}

// Pause stops the process (SIGSTOP) until Resume.
func (p *Process) Pause() error { return p.signal(pauseSignal) }

// Resume undoes Pause. It does no harm to a process that runs.
func (p *Process) Resume() error { return p.signal(resumeSignal) }

// Await polls until ready reports true. It returns early with ErrExited when the process ends, or with the context's cause.
func (p *Process) Await(ctx context.Context, ready func(context.Context) bool) error {
	for {
		if ready(ctx) && !p.HasExited() {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%w: %w", ErrExited, p.exitReason())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPeriod):
		}
	}
}

// step is a signal that ends a process, and how long to wait until it has.
type step struct {
	signal syscall.Signal
	grace  time.Duration
}

// Stop asks the process to end (SIGTERM), paused or not, and waits until it has; after the grace it kills the group. Any end
// but exit status 0 within the grace is an error, unless Kill was called meanwhile.
func (p *Process) Stop(grace time.Duration) error {
	err := p.end(step{syscall.SIGTERM, grace})
	if err == nil && p != nil && p.err != nil && !p.killed.Load() {
		err = fmt.Errorf("process %d did not end cleanly: %w", p.PID(), p.err)
	}
	return err
}

// end goes through the steps until the process is gone, paused or not, and kills the group at last. The exit status does not
// matter; it is an error if the first step was not enough.
func (p *Process) end(steps ...step) error {
	if p == nil {
		return nil
	}
	steps = append(steps, step{syscall.SIGKILL, killGrace})
	for i, s := range steps {
		p.ask(s.signal)
		_ = p.Resume() // a paused process takes no signal but SIGKILL
		select {
		case <-p.exited:
			if i == 0 {
				return nil
			}
			return fmt.Errorf("process %d had not ended %v after %s and was killed", p.PID(), steps[0].grace,
				signalName(steps[0].signal))
		case <-time.After(s.grace):
		}
	}
	return fmt.Errorf("process %d does not end", p.PID())
}

// Kill kills the process and its group (SIGKILL) and waits until it is gone.
func (p *Process) Kill() { _ = p.end() }

// ask sends a signal that should end the process; it fails only if it has ended.
func (p *Process) ask(s syscall.Signal) {
	p.stopping.Store(true)
	switch {
	case s == syscall.SIGTERM:
		p.term.Do(func() { _ = p.signal(s) })
	case s != syscall.SIGKILL:
		_ = p.signal(s)
	case !p.HasExited(): // the group's id may be another's afterwards
		p.killed.Store(true)
		_ = SignalGroup(p.PID(), s)
	}
}

// Sleep waits and reports whether the context is still alive afterwards.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
