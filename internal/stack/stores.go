package stack

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxWorkers is how many worker processes Postgres has connections for, at some 20 for each process.
	maxWorkers     = 32
	maxConnections = "1000"
	// serverPatience bounds the way back of a server after a fault.
	serverPatience = 60 * time.Second
	// watchPeriod is how often the servers are checked.
	watchPeriod = time.Second
)

// startServers starts Postgres and Redis on empty folders. Writes are forced to disk as in production.
func (s *Stack) startServers(ctx context.Context) error {
	if err := errors.Join(Remove(s.serverDir("redis")), Remove(s.serverDir("postgres"))); err != nil {
		return err
	}
	postgres := ServerOptions{Settings: map[string]string{"max_connections": maxConnections}, Logger: s.log}
	if err := s.servers.start(ctx, thisMachine(), s.o.Dir, &postgres, &ServerOptions{Logger: s.log}); err != nil {
		return err
	}
	s.databaseURL, s.redisURL = s.servers.Postgres.URL(), s.servers.Redis.URL()
	s.ops.Go(s.watchServers)
	return nil
}

func (s *Stack) serverDir(name string) string { return filepath.Join(s.o.Dir, name) }

// watchServers starts servers that ended although nobody asked for it.
func (s *Stack) watchServers() {
	for Sleep(s.ctx, watchPeriod) && s.serverFault.Acquire(s.ctx, 1) == nil {
		if err := s.runServers(s.ctx); err != nil {
			s.log.Error("a server does not come back", "error", err)
		}
		s.serverFault.Release(1)
	}
}

// runServers starts what does not run.
func (s *Stack) runServers(ctx context.Context) error {
	return errors.Join(s.servers.Postgres.Start(ctx), s.servers.Redis.Start(ctx))
}

// healServers waits for a fault that is done to a server to be over.
func (s *Stack) healServers(ctx context.Context) error {
	if s.o.foreign() {
		return nil
	}
	if s.serverFault.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer s.serverFault.Release(1)
	return s.runServers(ctx)
}

// closeServers stops the servers like a crash does, keeps their logs and removes the rest.
func (s *Stack) closeServers() error {
	if s.o.foreign() {
		return nil
	}
	errs := []error{s.servers.stop()}
	for _, name := range []string{"postgres", "redis"} {
		log, err := os.ReadFile(filepath.Join(s.serverDir(name), name+".log"))
		if err == nil {
			err = os.WriteFile(filepath.Join(s.Logs(), name+".log"), log, 0o644) //nolint:gosec // the folder is the caller's choice
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		// A server that did not start may have left a folder, too. One in use by another stack is refused.
		errs = append(errs, Remove(s.serverDir(name)))
	}
	return errors.Join(errs...)
}
