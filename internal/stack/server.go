package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// startTimeout bounds a start whose context does not. It covers the recovery of a crashed cluster on a slow disk.
	startTimeout = 60 * time.Second
	// quitGrace is for SIGQUIT: Postgres itself kills after 5 s what does not follow.
	quitGrace = 10 * time.Second
)

// ServerOptions say where and how a private Postgres or Redis runs.
type ServerOptions struct {
	// Dir is the server's folder: its data (in "data"), its log, and the password
	// of Postgres' one role. It is created when missing, and used again when present.
	//
	// No server runs as root. A root parent runs Postgres as user "postgres" or
	// "nobody", and Redis as "redis", "valkey" or "nobody", or as the owner of the
	// files that are there already. When that user cannot reach Dir (below /root,
	// or in a folder made by os.MkdirTemp), the files go to a folder below
	// /var/lib/forgerun, and a warning says so. MkdirTemp makes temporary folders
	// that the user can reach.
	Dir string
	// Programs is a folder with the server's programs, for when the machine has none that will do; "" for none.
	Programs string
	// Cluster is the folder of a stopped Postgres server. A new server gets a copy of its data instead of an empty cluster.
	Cluster string
	// Auth is how a new cluster of Postgres asks for the password, as initdb names it; "" for scram-sha-256.
	Auth string
	// Settings are configuration parameters of Postgres, or directives of Redis with one value. They are given on the
	// command line, so ALTER SYSTEM cannot change them. Postgres' fsync and synchronous_commit are on unless set here.
	Settings map[string]string
	// Env are further variables of the server's environment, which is otherwise empty but for what it needs.
	Env []string
	// Logger gets a line for each start, and for an unexpected end. Nil: none.
	Logger *slog.Logger

	log       string   // file that what the server prints is appended to; "": one in Dir
	throwaway bool     // a new cluster need not survive a power failure
	machine   *machine // nil: this one
}

// errDataBusy: backends of a killed Postgres are still finishing.
var errDataBusy = errors.New("processes of a former server still use the data folder")

// program is what differs between the servers.
type program interface {
	// prepare makes the data ready. No server runs on it meanwhile.
	prepare(ctx context.Context) error
	// arguments are those of the server on its port.
	arguments() []string
	// ready reports whether the process pid serves the port: it, not another.
	ready(ctx context.Context, pid int) bool
}

// server is one program with its folder and port, running or not. Its methods may be called from several goroutines.
type server struct {
	name string
	path string // of the program
	program
	o      ServerOptions // complete
	home   *home
	port   int
	holder net.PacketConn // of the port
	// death ends it at once, also when its parent dies; nothing is lost by it.
	death syscall.Signal

	op sync.Mutex // one start or stop at a time

	current atomic.Pointer[Process] // nil: not running
}

// newServer returns a server that does not run yet, with its folder made and its port chosen for its life; its program is still
// to be set.
func (o ServerOptions) newServer(ctx context.Context, name, path string, death syscall.Signal, users ...string) (*server, error) {
	if o.Dir == "" {
		return nil, fmt.Errorf("the options for %s: Dir is empty", name)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	home, err := openHome(ctx, o, path, users)
	if err != nil {
		return nil, fmt.Errorf("the folder for %s: %w", name, err)
	}
	o.log = cmp.Or(o.log, home.path(name+".log"))
	port, holder, err := reservePort()
	return &server{name: name, path: path, o: o, home: home, port: port, holder: holder, death: death}, err
}

// Port returns the TCP port on 127.0.0.1. It stays the same over Stop and Start.
func (s *server) Port() int { return s.port }

// Dir returns the server's folder, without symbolic links.
func (s *server) Dir() string { return s.home.dir }

// PID returns the id of the server's main process, 0 when it does not run.
func (s *server) PID() int {
	if p := s.current.Load(); !p.HasExited() {
		return p.PID()
	}
	return 0
}

// Start starts a server that was stopped or died, on the same folder and port. It does nothing when the server runs.
func (s *server) Start(ctx context.Context) error {
	s.op.Lock()
	defer s.op.Unlock()
	if !s.current.Load().HasExited() {
		return nil
	}
	s.home.release()
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	if err := s.launch(ctx); err != nil {
		s.home.release()
		return fmt.Errorf("starting %s: %w", s.name, err)
	}
	return nil
}

func (s *server) launch(ctx context.Context) error {
	if err := s.home.acquire(); err != nil {
		return err
	}
	if err := s.home.endOrphan(ctx, s.o.Logger); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	for {
		if err := s.attempt(ctx); !errors.Is(err, errDataBusy) || !Sleep(ctx, 5*pollPeriod) {
			return err
		}
	}
}

// command runs a program in the folder, as the server's user, with the server's log.
func (s *server) command(path string, args ...string) Command {
	return Command{
		Path: path, Args: args, Env: append(childEnv(), s.o.Env...), Dir: s.home.dir, User: s.home.user.credential(),
		DeathSignal: s.death, Log: s.o.log,
	}
}

// attempt runs the server once.
func (s *server) attempt(ctx context.Context) error {
	began := time.Now()
	p, err := StartProcess(s.command(s.path, s.arguments()...))
	if err != nil {
		return err
	}
	if err = s.home.noteRunning(p.PID(), s.port); err == nil {
		err = p.Await(ctx, func(ctx context.Context) bool { return s.ready(ctx, p.PID()) })
	}
	if err != nil {
		_ = p.end(step{s.death, quitGrace})
		if strings.Contains(p.Output(), "pre-existing shared memory block") { // it is untranslated; see childEnv
			err = fmt.Errorf("%w: %w", errDataBusy, err)
		}
		return p.Explain(err)
	}
	s.current.Store(p)
	go s.reportExit(p)
	s.o.Logger.Info(s.name+" is ready", "port", s.port, "pid", p.PID(), "folder", s.home.dir,
		"took", time.Since(began).Round(time.Millisecond))
	return nil
}

// reportExit ends with the process.
func (s *server) reportExit(p *Process) {
	if err := p.exitReason(); !p.stopping.Load() {
		s.o.Logger.Error(s.name+" ended unexpectedly",
			"pid", p.PID(), "action", "watch_server", "error_message", p.Explain(err).Error())
	}
}

// Stop ends the server in order, paused or not, and waits until it is gone. It does nothing when called again. A server that
// does not end in time is killed, which is an error.
func (s *server) Stop() error {
	// SIGINT is an orderly end to both servers; SIGTERM would make Postgres wait for its clients.
	return s.end(step{syscall.SIGINT, 30 * time.Second}, step{syscall.SIGQUIT, quitGrace})
}

// Kill ends the server like a crash and waits until it is gone.
func (s *server) Kill() error { return s.end(step{s.death, quitGrace}) }

// Pause makes the server hang (SIGSTOP): connections are accepted, nothing is answered. It fails when the server is down.
func (s *server) Pause() error { return s.current.Load().Pause() }

// Resume undoes Pause.
func (s *server) Resume() error { return s.current.Load().Resume() }

func (s *server) end(steps ...step) error {
	s.op.Lock()
	defer s.op.Unlock()
	p := s.current.Load()
	err := p.end(steps...)
	if p.HasExited() {
		s.current.Store(nil)
		s.home.release()
	}
	return err
}

// Ports are chosen below every system's range for outgoing connections (Linux starts it at 32768, others higher), from which
// any connection may take a port while the server is down.
const (
	firstPort = 20000
	lastPort  = 29999
)

const loopback = "127.0.0.1"

// reservePort chooses a port that is not chosen again until its holder is closed: a UDP socket on the same number, which
// choosing takes too. Servers bind the TCP port only.
func reservePort() (port int, holder net.PacketConn, err error) {
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		holder, err := net.ListenPacket("udp4", address(port))
		if err != nil {
			continue
		}
		if l, err := net.Listen("tcp4", address(port)); err == nil {
			return port, holder, l.Close()
		}
		_ = holder.Close()
	}
	return 0, nil, errors.New("no free port between 20000 and 29999 on 127.0.0.1")
}

// FreeAddress returns an address on 127.0.0.1 on which nothing listens now, and which no server of this package has chosen.
func FreeAddress() (string, error) {
	port, holder, err := reservePort()
	if err != nil {
		return "", err
	}
	return address(port), holder.Close()
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
