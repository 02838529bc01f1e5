package devstack

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// pollPeriod is how often a state without an event to wait for is looked at.
const pollPeriod = 10 * time.Millisecond

var errNotRunning = errors.New("devstack: the server is not running")

// command says how to run a program as a child.
type command struct {
	path string
	args []string
	dir  string   // working folder; the user must be able to enter it
	user *account // nil: as this process
	log  serverLog
	// deathSignal is what the kernel sends to the child when this process dies
	// (Linux only).
	deathSignal syscall.Signal
}

// process is one run of a command.
type process struct {
	cmd    *exec.Cmd
	log    serverLog
	offset int64 // where this run's output begins in the log

	exited chan struct{} // closed when the process is gone and reaped
	err    error         // why, valid once exited is closed

	ended atomic.Bool // somebody asked for the end
}

// step is one way to make a process end, and how long to wait for it.
type step struct {
	signal syscall.Signal
	grace  time.Duration
}

// run starts the command. Its two goroutines end with the process.
func (c command) run() (*process, error) {
	out, offset, err := c.log.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own copy
	cmd := exec.Command(c.path, c.args...)
	cmd.Dir, cmd.Env = c.dir, childEnv()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: c.user.credential()}
	dieWithParent(cmd.SysProcAttr, c.deathSignal)

	p := &process{cmd: cmd, log: c.log, offset: offset, exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, err
	}
	go p.boundLog()
	return p, nil
}

// own starts the process and waits for its end on one thread. "Parent" means
// the starting *thread* to the kernel: were it to end before the child, the
// child would get its death signal. A locked goroutine keeps the thread alive.
func (p *process) own(started chan<- error) {
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

func (p *process) boundLog() {
	tick := time.NewTicker(logTrimPeriod)
	defer tick.Stop()
	for {
		select {
		case <-p.exited:
			return
		case <-tick.C:
			_ = p.log.trim() // tried again at the next tick
		}
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

func (p *process) output() string { return p.log.since(p.offset) }

func (p *process) signal(s syscall.Signal) error {
	err := p.cmd.Process.Signal(s)
	if errors.Is(err, os.ErrProcessDone) {
		return errNotRunning
	}
	return err
}

// await looks every few milliseconds whether ready reports true. It returns
// early with ready's error, with errExited when the process ends, or with the
// context's error.
func (p *process) await(ctx context.Context, ready func(context.Context) (bool, error)) error {
	tick := time.NewTicker(pollPeriod)
	defer tick.Stop()
	for {
		done, err := ready(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%w: %w", errExited, p.exitReason())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// end goes through the steps until the process is gone. It reports an error
// when the first step was not enough.
func (p *process) end(steps ...step) error {
	p.ended.Store(true)
	for i, s := range steps {
		if err := p.signal(s.signal); err != nil && !errors.Is(err, errNotRunning) {
			return err
		}
		// A stopped process takes no signal but SIGKILL until it is continued.
		_ = p.signal(syscall.SIGCONT)
		select {
		case <-p.exited:
			if i > 0 {
				return fmt.Errorf("devstack: process %d ignored %v for %v and was ended by %v",
					p.pid(), steps[0].signal, steps[0].grace, s.signal)
			}
			return nil
		case <-time.After(s.grace):
		}
	}
	return fmt.Errorf("devstack: process %d does not end", p.pid())
}

func (p *process) exitReason() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// childEnv is the environment of every server: nothing of this process's
// configuration and secrets, no PG* variable, untranslated messages (this
// package reads some), UTC.
func childEnv() []string {
	env := []string{"LC_ALL=C", "TZ=UTC"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
