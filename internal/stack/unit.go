package stack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
)

// unit runs one program: a server, or a role of the service. At most one of its processes runs at a time. It is safe for concurrent use.
type unit struct {
	name     string
	log      *slog.Logger
	begin    func(context.Context) (*Process, error) // starts a process and returns when it is ready; after an error, no process runs
	ready    readiness
	freed    func()              // called before a start, after a failed start, and after a stop, while no process runs
	logAttrs []any               // further attributes for the "is ready" log line
	gate     *semaphore.Weighted // a fault acquires it to keep the program down
	ctx      context.Context     // keep() runs until this context ends; nil if keep() is not used

	op      sync.Mutex // locked during a start or stop
	current atomic.Pointer[Process]
	failure atomic.Pointer[error] // error for awaitReady to return; nil while awaitReady should wait
}

const (
	// awaitReady stops waiting after this many failed starts in a row. keep() continues to try.
	maxEarlyExits = 5
	// keep() waits before it tries again. The wait is earlyPause times the number of failed starts in a row, but at most maxPause.
	earlyPause, maxPause = 200 * time.Millisecond, 2 * time.Second
)

// errRefused means that the program rejected its configuration, so another start would fail too.
var errRefused = errors.New("it refuses its configuration")

// PID returns the id of the running process, or 0.
func (u *unit) PID() int {
	if p := u.current.Load(); !p.HasExited() {
		return p.PID()
	}
	return 0
}

// living returns the running process. It returns nil if no process runs, or if the process is being stopped.
func (u *unit) living() *Process {
	if p := u.current.Load(); !p.HasExited() && !p.stopping.Load() {
		return p
	}
	return nil
}

func (u *unit) Start(ctx context.Context) error {
	u.op.Lock()
	defer u.op.Unlock()
	if !u.current.Load().HasExited() {
		return nil
	}
	u.freed()
	began := time.Now()
	p, err := u.begin(ctx)
	if err != nil {
		u.freed()
		return fmt.Errorf("starting %s: %w", u.name, err)
	}
	u.current.Store(p)
	u.log.Info(u.name+" is ready", append([]any{"pid", p.PID(), "took", time.Since(began).Round(time.Millisecond)}, u.logAttrs...)...)
	go func() {
		if err := p.exitReason(); !p.stopping.Load() {
			u.log.Error(u.name+" ended unexpectedly", "pid", p.PID(), "action", "watch_server", "error_message", p.Explain(err).Error())
		}
	}()
	return nil
}

func (u *unit) end(s syscall.Signal, grace time.Duration) error {
	u.op.Lock()
	defer u.op.Unlock()
	p := u.current.Load()
	err := p.end(s, grace)
	if p.HasExited() {
		u.freed()
	}
	return err
}

// Pause stops the program with SIGSTOP. The kernel still accepts its connections, but they get no response. Pause fails if the program
// does not run.
func (u *unit) Pause() error { return u.current.Load().Pause() }

func (u *unit) Resume() error { return u.current.Load().Resume() }

// keep starts the program whenever it does not run, until u.ctx ends.
func (u *unit) keep() {
	ctx := u.ctx
	for early := 0; Sleep(ctx, min(time.Duration(early)*earlyPause, maxPause)); {
		if u.gate.Acquire(ctx, 1) != nil {
			return
		}
		err := u.Start(ctx)
		u.gate.Release(1)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			u.log.Warn(u.name+" did not start", "error", err)
			if early++; early >= maxEarlyExits || errors.Is(err, errRefused) {
				u.failure.Store(&err)
			}
			continue
		}
		early = 0
		u.failure.Store(nil)
		select {
		case <-u.current.Load().exited:
		case <-ctx.Done():
		}
	}
}

// awaitReady waits until the program that keep() starts is ready. It returns the latest start error after maxEarlyExits failed starts in a
// row, or if the program refuses its configuration. It also returns when ctx or u.ctx ends.
func (u *unit) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(u.ctx, cancel)()
	for {
		p, failure := u.living(), u.failure.Load()
		switch {
		case p != nil && u.ready(ctx, p.PID()):
			return nil
		case p == nil && failure != nil:
			return *failure
		case !Sleep(ctx, pollPeriod):
			return fmt.Errorf("%s is not ready: %w", u.name, context.Cause(ctx))
		}
	}
}

// Ports are below the range for outgoing connections, which starts at 32768 on Linux and higher elsewhere. Otherwise an outgoing
// connection could take the port of a stopped program.
const (
	firstPort = 20000
	lastPort  = 29999
	loopback  = "127.0.0.1"
)

// holders are UDP sockets that reserve the chosen port numbers, so freePort in another process does not choose the same ports. They do not
// disturb the programs, which use TCP.
var holders struct {
	sync.Mutex
	sockets []net.PacketConn
}

// freePort chooses a port for the life of this process.
func freePort() (int, error) {
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		holder, err := net.ListenPacket("udp4", address(port))
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp4", address(port)); err == nil {
			holders.Lock()
			defer holders.Unlock()
			holders.sockets = append(holders.sockets, holder)
			return port, l.Close()
		}
		_ = holder.Close()
	}
	return 0, fmt.Errorf("no free port between %d and %d on %s", firstPort, lastPort, loopback)
}

// FreeAddress returns an unused address on 127.0.0.1. The address stays reserved until this process ends.
func FreeAddress() (string, error) {
	port, err := freePort()
	return address(port), err
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
