// Package process runs child processes: it starts them, waits for them to be
// ready, signals them and ends them. It knows nothing of what they do.
//
// Every child has a process group of its own: Ctrl-C at a terminal reaches only
// the parent, which then stops its children in order, and a kill also reaches
// what the child has started. On Linux the kernel can end a child when its
// parent dies, however it dies.
package process

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
	// ErrNotRunning is the error of signals to a process that has ended, or was
	// never started.
	ErrNotRunning = errors.New("the process is not running")
	// ErrExited is wrapped by the error of Await when the process ends meanwhile.
	ErrExited = errors.New("ended before it was ready")
)

// Command says how to run a program.
type Command struct {
	Path string
	Args []string            // without the program's name
	Env  []string            // nil: as this process
	Dir  string              // working folder, which User must be able to enter; "": as this process
	User *syscall.Credential // nil: as this process
	// Files are inherited by the child, as descriptors 3 and up.
	Files []*os.File
	// Output takes what the process prints; nil: Log does.
	Output io.Writer
	Log    Log
	// DeathSignal is sent to the child by the kernel when this process dies
	// (Linux only); 0: none.
	DeathSignal syscall.Signal
}

// Process is one run of a command. Its methods may be called from several
// goroutines. A nil Process is one that was never started: it takes no signal,
// and ending it does nothing.
type Process struct {
	cmd    *exec.Cmd
	log    Log
	offset int64 // where this run's output begins in the log

	term     sync.Once // SIGTERM is sent once: programs take a second one for "at once"
	killed   atomic.Bool
	stop     sync.Once
	stopping chan struct{} // closed when somebody has asked for the end
	exited   chan struct{} // closed when the process is gone and reaped
	err      error         // how it ended, valid once exited is closed
}

// Step is a signal that ends a process, and how long to wait until it has.
type Step struct {
	Signal syscall.Signal
	Grace  time.Duration
}

// Start runs the command.
func Start(c Command) (*Process, error) {
	p := &Process{cmd: exec.Command(c.Path, c.Args...), log: c.Log, stopping: make(chan struct{}), exited: make(chan struct{})}
	if c.Output == nil {
		out, offset, err := c.Log.open()
		if err != nil {
			return nil, err
		}
		defer func() { _ = out.Close() }() // the child has its own copy
		c.Output, p.offset = out, offset
	}
	p.cmd.Dir, p.cmd.Env, p.cmd.ExtraFiles = c.Dir, c.Env, c.Files
	p.cmd.Stdout, p.cmd.Stderr = c.Output, c.Output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.User}
	dieWithParent(p.cmd.SysProcAttr, c.DeathSignal)
	started := make(chan error, 1)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Path, err)
	}
	if c.Log.Bounded {
		go p.boundLog()
	}
	return p, nil
}

// Run runs the command to its end, and kills it when the context ends before.
// Any end but exit status 0 is an error, which holds the last lines of the log.
func Run(ctx context.Context, c Command) error {
	p, err := Start(c)
	if err != nil {
		return err
	}
	if err = p.Wait(ctx); err != nil && ctx.Err() == nil {
		return p.Explain(err)
	}
	return err
}

// own starts the process and waits for its end on one thread. "Parent" means
// the starting thread to the kernel: were it to end before the child, the child
// would get its death signal. A locked goroutine keeps the thread alive.
func (p *Process) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.exited)
}

// PID is the id of the process; 0 if it was never started.
func (p *Process) PID() int {
	if p == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Stopping is closed when somebody has asked for the end of the process.
func (p *Process) Stopping() <-chan struct{} { return p.stopping }

// HasExited reports whether the process is gone.
func (p *Process) HasExited() bool { return p == nil || isClosed(p.exited) }

// IsStopping reports whether somebody has asked for the end of the process.
func (p *Process) IsStopping() bool { return p == nil || isClosed(p.stopping) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// ExitReason says how a process ended that should still be running. It is never
// nil. It waits for the end.
func (p *Process) ExitReason() error {
	if <-p.exited; p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// ExitCode waits for the end; it is -1 for a process that a signal ended.
func (p *Process) ExitCode() int {
	<-p.exited
	return p.cmd.ProcessState.ExitCode()
}

// Signal sends a signal to the process alone, not to its group.
func (p *Process) Signal(s syscall.Signal) error {
	if p == nil {
		return ErrNotRunning
	}
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return ErrNotRunning
	}
	return err
}

// Pause stops the process (SIGSTOP) until Continue.
func (p *Process) Pause() error { return p.Signal(syscall.SIGSTOP) }

// Continue undoes Pause. It does no harm to a process that runs.
func (p *Process) Continue() error { return p.Signal(syscall.SIGCONT) }

// Await polls until ready reports true. It returns early with ready's error,
// with ErrExited when the process ends, or with the context's cause.
func (p *Process) Await(ctx context.Context, ready func(context.Context) (bool, error)) error {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		done, err := ready(ctx)
		if err != nil || done && !p.HasExited() {
			return err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%w: %w", ErrExited, p.ExitReason())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Wait waits for the end of the process: nil is exit status 0. When the context
// ends before, it kills the process and returns the context's cause.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.exited:
		return p.err
	case <-ctx.Done():
		p.Kill()
		return context.Cause(ctx)
	}
}

// Stop asks the process to end (SIGTERM), paused or not, and waits until it has;
// after the grace it kills the group. Any end but exit status 0 within the grace
// is an error, unless somebody else has killed the process meanwhile.
func (p *Process) Stop(grace time.Duration) error {
	if err := p.End(Step{syscall.SIGTERM, grace}); err != nil {
		return err
	}
	if p != nil && p.err != nil && !p.killed.Load() {
		return fmt.Errorf("process %d did not end cleanly: %w", p.PID(), p.err)
	}
	return nil
}

// End goes through the steps until the process is gone, paused or not, and kills
// the group at last. The exit status does not matter; it is an error if the
// first step was not enough.
func (p *Process) End(steps ...Step) error {
	if p == nil {
		return nil
	}
	steps = append(steps, Step{syscall.SIGKILL, killGrace})
	for i, s := range steps {
		p.end(s.Signal)
		_ = p.Continue() // a paused process takes no signal but SIGKILL
		select {
		case <-p.exited:
			if i == 0 {
				return nil
			}
			return fmt.Errorf("process %d had not ended %v after %s and was killed",
				p.PID(), steps[0].Grace, signalNames[steps[0].Signal])
		case <-time.After(s.Grace):
		}
	}
	return fmt.Errorf("process %d does not end", p.PID())
}

var signalNames = map[syscall.Signal]string{syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGQUIT: "SIGQUIT"}

// Sleep waits and reports whether the context is still alive afterwards.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Kill kills the process and its group (SIGKILL) and waits until it is gone.
func (p *Process) Kill() {
	if p != nil {
		p.end(syscall.SIGKILL)
		<-p.exited
	}
}

// end sends a signal that should end the process; it fails only if it has ended.
func (p *Process) end(s syscall.Signal) {
	p.stop.Do(func() { close(p.stopping) })
	switch {
	case s == syscall.SIGTERM:
		p.term.Do(func() { _ = p.Signal(s) })
	case s != syscall.SIGKILL:
		_ = p.Signal(s)
	case !p.HasExited(): // the group's id may be another's afterwards
		p.killed.Store(true)
		_ = syscall.Kill(-p.PID(), s)
	}
}
