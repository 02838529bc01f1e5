package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/process"
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
	s.databaseURL, s.redisURL = s.o.DatabaseURL, s.o.RedisURL
	if s.o.foreign() {
		return nil
	}
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		if err = devstack.Remove(s.serverDir("redis")); err == nil {
			s.redis, err = devstack.StartRedis(ctx, devstack.RedisOptions{Dir: s.serverDir("redis"), Logger: s.log})
		}
		return err
	})
	both.Go(func() (err error) {
		if err = devstack.Remove(s.serverDir("postgres")); err == nil {
			s.postgres, err = devstack.StartPostgres(ctx, devstack.PostgresOptions{
				Dir: s.serverDir("postgres"), Settings: map[string]string{"max_connections": maxConnections}, Logger: s.log,
			})
		}
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	s.databaseURL, s.redisURL = s.postgres.URL(), s.redis.URL()
	s.ops.Go(s.watchServers)
	return nil
}

func (s *Stack) serverDir(name string) string { return filepath.Join(s.o.Dir, name) }

// watchServers starts servers that ended although nobody asked for it.
func (s *Stack) watchServers() {
	for process.Sleep(s.ctx, watchPeriod) {
		if s.postgres.PID() != 0 && s.redis.PID() != 0 {
			continue
		}
		if s.serverFault.Acquire(s.ctx, 1) != nil {
			return
		}
		if err := s.runServers(s.ctx); err != nil {
			s.log.Error("a server does not come back", "error", err)
		}
		s.serverFault.Release(1)
	}
}

// runServers starts what does not run.
func (s *Stack) runServers(ctx context.Context) error {
	return errors.Join(s.postgres.Start(ctx), s.redis.Start(ctx))
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
	_ = s.redis.Resume() // fails only if it does not run
	return s.runServers(ctx)
}

// closeServers stops the servers like a crash does, keeps their logs and removes the rest.
func (s *Stack) closeServers() error {
	if s.o.foreign() {
		return nil
	}
	var errs []error
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop(devstack.Immediate))
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Kill())
	}
	// A server that did not start may have left a folder, too. One in use by another stack is refused.
	return errors.Join(append(errs, s.removeServer("postgres"), s.removeServer("redis"))...)
}

// removeServer keeps the log, if there is one, and removes the rest.
func (s *Stack) removeServer(name string) error {
	log, err := os.ReadFile(filepath.Join(s.serverDir(name), name+".log"))
	if err == nil {
		err = os.WriteFile(filepath.Join(s.logDir(), name+".log"), log, 0o644) //nolint:gosec // the folder is the caller's choice
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, devstack.Remove(s.serverDir(name)))
}

// proxiedServers gives the addresses that processes connect to.
func (s *Stack) proxiedServers() (database, redis string, err error) {
	if s.o.foreign() || !s.o.Faults {
		return s.databaseURL, s.redisURL, nil
	}
	if database, err = s.throughProxy("postgres", s.databaseURL); err != nil {
		return "", "", err
	}
	redis, err = s.throughProxy("redis", s.redisURL)
	return database, redis, err
}

// migrate brings the schema up to date.
func (s *Stack) migrate(ctx context.Context) error {
	env := environ{"FORGERUN_DATABASE_URL": s.databaseURL}
	if err := process.Run(ctx, s.command("migrate", "migrate", env.list())); err != nil {
		return fmt.Errorf("forgerun migrate: %w", err)
	}
	return nil
}

// command runs the program in a role.
func (s *Stack) command(name, role string, env []string) process.Command {
	return process.Command{
		Path: s.o.Forgerun, Args: []string{role}, Env: env, DeathSignal: syscall.SIGKILL,
		Log: process.Log{Path: filepath.Join(s.logDir(), name+".log"), Mode: 0o644},
	}
}
