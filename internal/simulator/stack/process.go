package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one run of the program.
type process struct {
	cmd   *exec.Cmd
	api   string // address of the API, "" in the other roles
	admin string // address of metrics and health

	ready  atomic.Bool // it has said so once
	asked  atomic.Bool // its end was asked for
	killed atomic.Bool // by kill
	term   sync.Once   // SIGTERM is sent once: the program takes a second one for "at once"
	exited chan struct{}
	err    error // how it ended; read after exited
}

// run starts the program with its log, to which it appends. The log is written
// by the process itself: a pipe would block it whenever its parent is slow.
func run(path, log string, env []string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }() // the process has its own copy
	p := &process{cmd: exec.Command(path, args...), exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, out, out
	// A group of its own: Ctrl-C at a terminal reaches the parent alone.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(p.cmd.SysProcAttr)
	started := make(chan error, 1)
	go p.own(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", path, err)
	}
	return p, nil
}

// own starts the process and waits for its end on one thread. "Parent" means
// the starting thread to the kernel: were it to end before the child, the child
// would be killed. A locked goroutine keeps the thread alive.
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

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill is kill -9; it waits until the process is gone.
func (p *process) kill() {
	p.asked.Store(true)
	p.killed.Store(true)
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.exited
}

func (p *process) pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// resume also does no harm to a process that runs, or has ended.
func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// terminate asks for the end (SIGTERM), paused or not, and waits for it. Any
// end but a clean one in time is an error, unless somebody else has killed the
// process meanwhile; in the end it is gone.
func (p *process) terminate(patience time.Duration) error {
	p.asked.Store(true)
	p.term.Do(func() { _ = p.cmd.Process.Signal(syscall.SIGTERM) }) // fails only if it has ended
	p.resume()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.exited:
		if p.err != nil && !p.killed.Load() {
			return fmt.Errorf("it did not end cleanly after SIGTERM: %w", p.err)
		}
		return nil
	case <-timer.C:
		p.kill()
		return fmt.Errorf("it had not ended %s after SIGTERM and was killed", patience)
	}
}

// exitCode is -1 for a process that a signal ended.
func (p *process) exitCode() int { return p.cmd.ProcessState.ExitCode() }

// failure tells how a process ended that should still be running.
func (p *process) failure() error {
	if p.err != nil {
		return p.err
	}
	return errors.New("exit status 0")
}

// asker asks processes for their health. It keeps no connections: a process is
// asked a few times, and killed at any time.
var asker = &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// healthy asks the process whether it can work now.
func (p *process) healthy(ctx context.Context) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.admin+"/readyz", nil)
	if err != nil {
		return false
	}
	answer, err := asker.Do(request)
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// askPeriod is how often a process is asked whether it is ready: that announces
// itself by nothing else.
const askPeriod = 25 * time.Millisecond

// awaitHealthy reports whether the process got ready before it ended, or the
// context did.
func (p *process) awaitHealthy(ctx context.Context) bool {
	tick := time.NewTicker(askPeriod)
	defer tick.Stop()
	for !p.healthy(ctx) {
		select {
		case <-p.exited:
			return false
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return !p.hasExited() // otherwise somebody else answered
}

// Ports are chosen below every system's range for outgoing connections, any of
// which might take one while its process is down for a moment.
const (
	firstPort = 20000
	lastPort  = 29999
	portTries = 20
)

// freeAddress gives one that nobody listens on at the moment.
func freeAddress() (string, error) {
	for range portTries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		if l, err := net.Listen("tcp4", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("no free port between %d and %d on 127.0.0.1", firstPort, lastPort)
}

// lastLines gives the end of a log, to explain an error with.
func lastLines(log string) string {
	const size, lines = 4 << 10, 15
	f, err := os.Open(log)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd) // else it is the beginning that is shown
	}
	text, _ := io.ReadAll(io.LimitReader(f, size))
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(all[max(0, len(all)-lines):], []byte("\n  | ")))
}
