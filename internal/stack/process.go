package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	pollPeriod  = 10 * time.Millisecond
	killGrace   = 10 * time.Second // time for a killed process to disappear
	maxLogBytes = 8 << 20          // if the log is larger when a process starts, it is renamed to *.old
	tailBytes   = 4 << 10
	tailLines   = 15
	logIndent   = "\n  | "
)

var (
	// ErrNotRunning is returned for a signal to a process that has ended or was never started.
	ErrNotRunning = errors.New("the process is not running")
	// ErrExited is wrapped by the error of Await if the process ends before it is ready.
	ErrExited = errors.New("ended before it was ready")
)

// Command describes how to run a program. The program gets its own process group, so Ctrl-C at a terminal reaches only the parent. The
// parent must stop the program. Process.Kill ends all processes of the group.
type Command struct {
	Path  string
	Args  []string    // without the program's name
	Env   []string    // nil: environment of this process
	Dir   string      // working folder, which User must be able to enter; "": working folder of this process
	User  *Credential // nil: user of this process
	Input io.Reader   // nil: none
	Files []*os.File  // open files for the program: descriptors 3, 4, ...
	Log   string      // file to append output to
	// DeathSignal is the signal that the Linux kernel sends to the program when this process dies; 0: none. Other systems ignore it.
	DeathSignal syscall.Signal
}

// Process is one run of a command. It is safe for concurrent use. A nil Process stands for a process that was never started: signals fail,
// and Stop and Kill do nothing.
type Process struct {
	cmd    *exec.Cmd
	log    string
	offset int64 // start of this run's output in the log

	stopping atomic.Bool // Stop or Kill was called
	killed   atomic.Bool
	exited   chan struct{} // closed when the process is gone and reaped
	err      error         // exit error, valid once exited is closed
}

// StartProcess starts the command and returns at once. The caller must stop the process.
func StartProcess(c Command) (*Process, error) {
	out, offset, err := openLog(c.Log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the child has its own descriptor of the log
	p := &Process{cmd: exec.Command(c.Path, c.Args...), log: c.Log, offset: offset, exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env, p.cmd.Stdin = c.Dir, c.Env, c.Input
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.ExtraFiles = out, out, c.Files
	runAs(p.cmd, c.User, c.DeathSignal)
	OwnGroup(p.cmd)
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the thread that started the child ends. So this goroutine stays locked to its thread until the
		// child ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if started <- err; err == nil {
			p.err = p.cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", c.Path, err)
	}
	return p, nil
}

// RunProcess runs the command to its end, and kills it if the context ends first. For a non-zero exit status it returns an error
// with the last lines of the log.
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

// PID returns the process id, or 0 if the process was never started.
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

// exitReason waits until the process ends, and returns why. It returns an error even for exit status 0.
func (p *Process) exitReason() error {
	if <-p.exited; p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// Await polls until ready returns true. If the process ends first, the error wraps ErrExited. If ctx ends first, Await returns the cause
// of ctx.
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

// Resume undoes Pause.
func (p *Process) Resume() error { return p.signal(resumeSignal) }

// Stop sends SIGTERM and waits. After the grace period it kills the group. It returns nil if the process exits with status 0 within the
// grace period. It also returns nil if Kill was called during the wait.
func (p *Process) Stop(grace time.Duration) error {
	err := p.end(syscall.SIGTERM, grace)
	if err == nil && p != nil && p.err != nil && !p.killed.Load() {
		err = fmt.Errorf("process %d did not end cleanly: %w", p.PID(), p.err)
	}
	return err
}

// Kill kills the process and its group (SIGKILL) and waits until it is gone.
func (p *Process) Kill() { _ = p.end(syscall.SIGKILL, killGrace) }

// end sends a signal and resumes the process if it is paused. If the process still runs after the grace period, end kills the group and
// returns an error. It ignores the exit status.
func (p *Process) end(s syscall.Signal, grace time.Duration) error {
	if p == nil {
		return nil
	}
	again := p.stopping.Swap(true)
	switch {
	case s == syscall.SIGKILL:
		p.killGroup()
	case s == syscall.SIGTERM && again: // a second SIGTERM would end the process at once, without its grace period
	default:
		_ = p.signal(s)
	}
	_ = p.Resume() // a paused process handles only SIGKILL
	if p.exitsWithin(grace) {
		return nil
	}
	if p.killGroup(); p.exitsWithin(killGrace) {
		return fmt.Errorf("process %d had not ended %v after %s and was killed", p.PID(), grace, signalName(s))
	}
	return fmt.Errorf("process %d does not end", p.PID())
}

func (p *Process) killGroup() {
	if !p.HasExited() { // after the exit, another process group may have the same id
		p.killed.Store(true)
		_ = SignalGroup(p.PID(), syscall.SIGKILL)
	}
}

func (p *Process) exitsWithin(grace time.Duration) bool {
	select {
	case <-p.exited:
		return true
	case <-time.After(grace):
		return false
	}
}

type readiness func(ctx context.Context, pid int) bool

func (p *Process) awaitOrEnd(ctx context.Context, ready readiness, s syscall.Signal, grace time.Duration) error {
	err := p.Await(ctx, func(ctx context.Context) bool { return ready(ctx, p.PID()) })
	if err != nil {
		_ = p.end(s, grace)
		return p.Explain(err)
	}
	return nil
}

// openLog opens the file that processes append their output to, and returns its size. Processes write directly to the file. A pipe would
// block them while their parent is paused.
func openLog(path string) (f *os.File, size int64, err error) {
	if info, err := os.Stat(path); err == nil && info.Size() > maxLogBytes {
		_ = os.Rename(path, path+".old") // on failure the log keeps growing
	}
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err == nil {
		size, _ = f.Seek(0, io.SeekEnd) // 0 if the log is a terminal
	}
	return f, size, err
}

// Output returns the end of this run's output, at most tailBytes, or "" if the log cannot be read.
func (p *Process) Output() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	size, _ := f.Seek(0, io.SeekEnd)
	text, _ := io.ReadAll(io.NewSectionReader(f, max(p.offset, size-tailBytes), tailBytes))
	return string(text)
}

// Explain appends the last lines of this run's output to an error.
func (p *Process) Explain(err error) error {
	lines := strings.Split(strings.TrimSpace(p.Output()), "\n")
	text := strings.Join(lines[max(0, len(lines)-tailLines):], logIndent)
	if text == "" {
		return fmt.Errorf("%w (nothing in %s)", err, p.log)
	}
	return fmt.Errorf("%w; the last lines of %s:%s%s", err, p.log, logIndent, text)
}

// Sleep waits for d or until ctx ends. It returns false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
