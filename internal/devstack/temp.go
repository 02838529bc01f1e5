package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// TempOptions says what a temporary stack has.
type TempOptions struct {
	// Postgres and Redis are settings as in PostgresOptions and RedisOptions.
	Postgres map[string]string
	Redis    map[string]string
	// WithoutPostgres and WithoutRedis leave a server out.
	WithoutPostgres bool
	WithoutRedis    bool
	// Logger is as in PostgresOptions.
	Logger *slog.Logger
}

// Stack is a Postgres and a Redis under one temporary folder.
type Stack struct {
	Postgres *Postgres // nil when left out
	Redis    *Redis    // nil when left out

	dir  string
	lock *home
}

// tempPrefix begins the names of the folders of temporary stacks.
const tempPrefix = "forgerun-stack-"

// Temp starts a stack that leaves nothing behind after Close. What a killed process could not close, the next Temp
// removes. After an error no server is left running.
func Temp(ctx context.Context, o TempOptions) (*Stack, error) {
	return thisMachine().temp(ctx, o, os.TempDir())
}

func (m machine) temp(ctx context.Context, o TempOptions, parent string) (*Stack, error) {
	sweepTemp(parent)
	dir, err := mkdirTemp(parent, tempPrefix)
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	s := &Stack{dir: dir, lock: &home{dir: dir}}
	if err := s.lock.acquire(); err != nil {
		return nil, errors.Join(fmt.Errorf("devstack: %w", err), os.RemoveAll(dir))
	}
	if err := s.startBoth(ctx, m, o); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Stack) startBoth(ctx context.Context, m machine, o TempOptions) error {
	both, ctx := errgroup.WithContext(ctx)
	if !o.WithoutRedis {
		both.Go(func() (err error) {
			s.Redis, err = m.startRedis(ctx, Options{Dir: filepath.Join(s.dir, "redis"), Settings: o.Redis, Logger: o.Logger})
			return err
		})
	}
	if !o.WithoutPostgres {
		both.Go(func() (err error) {
			postgres := Options{Dir: filepath.Join(s.dir, "postgres"), Settings: o.Postgres, Logger: o.Logger, throwaway: true}
			s.Postgres, err = m.startPostgres(ctx, postgres)
			return err
		})
	}
	return both.Wait()
}

// Close stops the servers at once and removes their files. It may be called again.
func (s *Stack) Close() error {
	var err error
	if s.Redis != nil {
		err = errors.Join(s.Redis.Kill(), os.RemoveAll(s.Redis.home.dir))
	}
	if s.Postgres != nil {
		err = errors.Join(err, s.Postgres.Stop(Immediate), os.RemoveAll(s.Postgres.home.dir))
	}
	err = errors.Join(err, os.RemoveAll(s.dir))
	s.lock.release()
	return err
}

// MkdirTemp is os.MkdirTemp for server folders: the user as which a root parent runs its servers may enter the
// folder, though not list it.
func MkdirTemp(prefix string) (string, error) { return mkdirTemp(os.TempDir(), prefix) }

func mkdirTemp(parent, prefix string) (string, error) {
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil || os.Geteuid() != 0 {
		return dir, err
	}
	return dir, os.Chmod(dir, 0o711)
}

// sweepTemp removes what killed processes left: folders of stacks whose lock is free. The lock of a young folder may
// be about to be taken. Errors do not matter to the caller.
func sweepTemp(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*")) // fails for bad patterns only
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		// Anybody may make a folder of this name here: touch only one's own.
		if owner, ok := info.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
			continue
		}
		h := &home{dir: dir}
		if h.acquire() != nil {
			continue
		}
		// The system may have left servers running.
		if endOrphansIn(filepath.Join(dir, "postgres")) == nil && endOrphansIn(filepath.Join(dir, "redis")) == nil {
			_ = os.RemoveAll(dir)
		}
		h.release()
	}
}
