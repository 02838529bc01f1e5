package stack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/devstack"
)

const (
	// maxWorkers is how many worker processes Postgres has connections for, at
	// the 20 and some that each process keeps.
	maxWorkers     = 32
	maxConnections = "1000"
	// storePatience bounds the way back of a server after a fault.
	storePatience = 60 * time.Second
	// watchPeriod is how often is looked whether the servers run.
	watchPeriod = time.Second
)

// startStores starts Postgres and Redis at once, on empty folders. Writes are
// forced to disk as in production: faults are the point.
func (s *Stack) startStores(ctx context.Context) error {
	s.databaseURL, s.redisURL = s.o.DatabaseURL, s.o.RedisURL
	if s.o.foreign() {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	redis := make(chan error, 1)
	go func() {
		var err error
		if err = devstack.Remove(s.storeDir("redis")); err == nil {
			s.redis, err = devstack.StartRedis(ctx, devstack.RedisOptions{Dir: s.storeDir("redis"), Logger: s.log})
		}
		redis <- err
	}()
	err := devstack.Remove(s.storeDir("postgres"))
	if err == nil {
		s.postgres, err = devstack.StartPostgres(ctx, devstack.PostgresOptions{
			Dir: s.storeDir("postgres"), Settings: map[string]string{"max_connections": maxConnections}, Logger: s.log,
		})
	}
	if err != nil {
		cancel()
	}
	if err := errors.Join(err, <-redis); err != nil {
		return err
	}
	s.databaseURL, s.redisURL = s.postgres.URL(), s.redis.URL()
	s.ops.Go(s.watchStores)
	return nil
}

func (s *Stack) storeDir(name string) string { return filepath.Join(s.o.Dir, name) }

// watchStores starts servers that ended although nobody asked for it.
func (s *Stack) watchStores() {
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if s.postgres.PID() != 0 && s.redis.PID() != 0 {
			continue
		}
		if s.storeFault.take(s.ctx) != nil {
			return
		}
		if err := s.runStores(s.ctx); err != nil {
			s.log.Error("a server does not come back", "error", err)
		}
		s.storeFault.give()
	}
}

// runStores starts what does not run.
func (s *Stack) runStores(ctx context.Context) error {
	return errors.Join(s.postgres.Start(ctx), s.redis.Start(ctx))
}

// healStores waits for a fault that is done to a server to be over.
func (s *Stack) healStores(ctx context.Context) error {
	if s.o.foreign() {
		return nil
	}
	if err := s.storeFault.take(ctx); err != nil {
		return err
	}
	defer s.storeFault.give()
	_ = s.redis.Resume() // fails only if it does not run
	return s.runStores(ctx)
}

// closeStores stops the servers like a crash does, since nobody needs their
// data, keeps their logs and removes the rest.
func (s *Stack) closeStores() error {
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
	// A server that did not start may have left a folder, too. One that another
	// stack uses is refused.
	return errors.Join(append(errs, s.removeStore("postgres"), s.removeStore("redis"))...)
}

func (s *Stack) removeStore(name string) error {
	return errors.Join(
		keepLog(filepath.Join(s.storeDir(name), name+".log"), filepath.Join(s.logDir(), name+".log")),
		devstack.Remove(s.storeDir(name)),
	)
}

// keepLog copies a log: a link would not do, since the folders may be on two
// file systems. There is none if the server never ran.
func keepLog(from, to string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// migrate brings the schema up to date.
func (s *Stack) migrate(ctx context.Context) error {
	log := filepath.Join(s.logDir(), "migrate.log")
	env := environ{"FORGERUN_DATABASE_URL": s.databaseURL}
	p, err := run(s.o.Forgerun, log, env.list(), "migrate")
	if err != nil {
		return err
	}
	select {
	case <-p.exited:
	case <-ctx.Done():
		p.kill()
		return context.Cause(ctx)
	}
	if p.err != nil {
		return fmt.Errorf("forgerun migrate: %w; the last lines of %s:\n  | %s", p.err, log, lastLines(log))
	}
	return nil
}

// proxiedStores gives the addresses that processes connect to.
func (s *Stack) proxiedStores() (database, redis string, err error) {
	if s.o.foreign() || !s.o.Faults {
		return s.databaseURL, s.redisURL, nil
	}
	if database, err = s.throughProxy("postgres", s.databaseURL); err != nil {
		return "", "", err
	}
	redis, err = s.throughProxy("redis", s.redisURL)
	return database, redis, err
}

// throughProxy puts a proxy in front of the server that a URL leads to.
func (s *Stack) throughProxy(name, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	p, err := newProxy(name, dialer(u.Host))
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.faulty = append(s.faulty, p)
	s.mu.Unlock()
	u.Host = p.address()
	return u.String(), nil
}

// askRedis sends commands around any proxy; each must be answered with OK.
func (s *Stack) askRedis(ctx context.Context, commands ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(s.redis.Port()))
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	answers := bufio.NewReader(conn)
	for _, command := range commands {
		if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
			return err
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return err
		}
		if answer != "+OK\r\n" {
			return fmt.Errorf("%s: Redis answers %q", command, strings.TrimSpace(answer))
		}
	}
	return nil
}
