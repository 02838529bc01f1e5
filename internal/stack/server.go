package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// startTimeout limits a start, including the recovery of a crashed cluster on a slow disk.
	startTimeout = 60 * time.Second
	// quitGrace is the time between SIGQUIT and a kill. Postgres itself kills its children 5 s after SIGQUIT.
	quitGrace = 10 * time.Second
)

// ServerOptions say where and how a private Postgres or Redis runs.
type ServerOptions struct {
	// Dir is the server's folder: its data (in "data"), its log, and the password of Postgres. It is created if missing.
	//
	// No server runs as root. If this process runs as root, the server runs as the owner of its existing data. Without data, it runs as user
	// "postgres", "redis" or "valkey", or else as an unprivileged one. If this user cannot enter Dir (for example /root/x), the files are in
	// a folder below /var/lib/forgerun. A link in Dir then points to that folder, and a warning is logged. MkdirTemp makes folders that the
	// user can enter.
	Dir string
	// Programs is a folder with the server's programs. It is used only if these programs are not installed on the machine.
	Programs string
	// Cluster is the folder of a stopped Postgres server. A new server starts with a copy of that server's data instead of an empty cluster.
	Cluster string
	// Auth is initdb's authentication method for a new cluster; "" for scram-sha-256.
	Auth string
	// Settings are Postgres parameters, or Redis directives with a single value. ALTER SYSTEM cannot change them, because they are passed on
	// the command line. The Postgres parameters fsync and synchronous_commit are on unless set here.
	Settings map[string]string
	// Env holds additional environment variables. The server inherits only the search paths from this process.
	Env []string
	// Logger receives a line for each start and each unexpected end; nil disables it.
	Logger *slog.Logger

	log       string   // file for the server's output; "": a file in Dir
	throwaway bool     // a new cluster is not synced to disk, so a power failure may destroy it
	machine   *machine // nil: this machine
}

// server is Postgres or Redis. Its folder and its port stay the same when it is stopped and started again.
type server struct {
	unit
	path  string
	o     ServerOptions
	home  *home
	port  int
	death syscall.Signal // signal that ends the server at once without data loss; the kernel sends it when this process dies

	prepare   func(context.Context) error // prepares the data while no server runs
	arguments func() []string
}

// newServer returns a server that does not run yet. The caller must set its fields prepare, arguments and ready.
func (o ServerOptions) newServer(ctx context.Context, name, path string, death syscall.Signal, users ...string) (*server, error) {
	if o.Dir == "" {
		return nil, fmt.Errorf("the options for %s: Dir is empty", name)
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	home, err := openHome(ctx, o, path, users)
	if err != nil {
		return nil, fmt.Errorf("open the folder for %s: %w", name, err)
	}
	o.log = cmp.Or(o.log, home.path(name+".log"))
	port, err := freePort()
	s := &server{path: path, o: o, home: home, port: port, death: death}
	s.unit = unit{name: name, log: o.Logger, begin: s.launch, freed: home.release, gate: semaphore.NewWeighted(1),
		logAttrs: []any{"port", port, "folder", home.dir}}
	return s, err
}

// Port returns the TCP port on 127.0.0.1.
func (s *server) Port() int { return s.port }

// Dir returns the server's folder, without symbolic links.
func (s *server) Dir() string { return s.home.dir }

func (s *server) launch(ctx context.Context) (*Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready after %v", startTimeout))
	defer cancel()
	if err := s.home.acquire(); err != nil {
		return nil, err
	}
	if s.current.Load() != nil { // the previous process has ended, and another process may get its PID
		_ = s.home.noteRunning(0)
	}
	running, err := s.home.claim(ctx, s.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = running.Close() }() // the server has its own descriptor of the lock file
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	c := s.command(s.path, s.arguments()...)
	c.Files = []*os.File{running}
	p, err := StartProcess(c)
	if err != nil {
		return nil, err
	}
	if err = errors.Join(s.home.noteRunning(p.PID()), p.awaitOrEnd(ctx, s.ready, s.death, quitGrace)); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (s *server) command(path string, args ...string) Command {
	return Command{
		Path: path, Args: args, Env: append(childEnv(), s.o.Env...), Dir: s.home.dir, User: s.home.user.credential(),
		DeathSignal: s.death, Log: s.o.log,
	}
}

// Stop shuts the server down, even if it is paused, and waits until it is gone. If the server does not end in time, Stop kills it
// and returns an error.
func (s *server) Stop() error {
	// After SIGTERM, Postgres would wait for its clients to disconnect.
	return s.end(syscall.SIGINT, 30*time.Second)
}

// KeepRunning restarts the server whenever it ends unexpectedly. The function `stop` ends this, and then stops the server like the method
// Stop.
func (s *server) KeepRunning(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.ctx = ctx
	var kept sync.WaitGroup
	kept.Go(s.keep)
	return func() error {
		cancel()
		kept.Wait()
		return s.Stop()
	}
}

// Kill crashes the server and waits until it is gone.
func (s *server) Kill() error { return s.end(s.death, quitGrace) }
