package stack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Servers are a Postgres and a Redis.
type Servers struct {
	Postgres *Postgres // nil: none
	Redis    *Redis    // nil: none

	temp *home // the temporary folder, locked; nil: none
}

// start starts the servers that there are options for, in folders below dir. What was started stays after an error.
func (s *Servers) start(ctx context.Context, m machine, dir string, postgres, redis *ServerOptions) error {
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) { s.Redis, err = startIn(ctx, dir, "redis", redis, m.startRedis); return err })
	both.Go(func() (err error) {
		s.Postgres, err = startIn(ctx, dir, "postgres", postgres, m.startPostgres)
		return err
	})
	return both.Wait()
}

// startIn starts a server in a folder below dir, if there are options for it; nil without them, and after an error.
func startIn[T any](
	ctx context.Context, dir, name string, o *ServerOptions, start func(context.Context, ServerOptions) (*T, error),
) (*T, error) {
	if o == nil {
		return nil, nil //nolint:nilnil // none was asked for
	}
	in := *o
	in.Dir = filepath.Join(dir, name)
	server, err := start(ctx, in)
	if err != nil {
		return nil, err
	}
	return server, nil
}

// stop ends the servers as a crash does.
func (s *Servers) stop() error {
	var errs []error
	if s.Redis != nil {
		errs = append(errs, s.Redis.Kill())
	}
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Stop(Immediate))
	}
	return errors.Join(errs...)
}

// tempPrefix begins the names of the folders of temporary servers.
const tempPrefix = "forgerun-stack-"

// Temp starts servers that leave nothing behind after Close; nil leaves one out. What a killed process could not close, the
// next Temp removes. After an error no server is left running.
func Temp(ctx context.Context, postgres, redis *ServerOptions) (*Servers, error) {
	return thisMachine().temp(ctx, os.TempDir(), postgres, redis)
}

func (m machine) temp(ctx context.Context, parent string, postgres, redis *ServerOptions) (*Servers, error) {
	sweepTemp(parent)
	dir, err := mkdirTemp(parent, tempPrefix)
	if err != nil {
		return nil, err
	}
	s := &Servers{temp: &home{dir: dir}}
	if err = s.temp.acquire(); err == nil {
		if postgres != nil {
			throwaway := *postgres
			throwaway.throwaway, postgres = true, &throwaway
		}
		err = s.start(ctx, m, dir, postgres, redis)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close stops the servers at once and removes their files. It may be called again.
func (s *Servers) Close() error {
	err := errors.Join(s.stop(), s.temp.removeServers())
	s.temp.release()
	return err
}

// removeServers removes a folder of temporary servers.
func (h *home) removeServers() error {
	for _, name := range []string{"redis", "postgres"} {
		if real, err := filepath.EvalSymlinks(h.path(name)); err == nil {
			if err := (&home{dir: real}).clear(); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(h.dir)
}

// clear removes a server's folder, and stops the server if a killed parent left it there.
func (h *home) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := h.endOrphan(ctx, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	return os.RemoveAll(h.dir)
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

// sweepTemp removes what killed processes left: folders of servers whose lock is free. The lock of a young folder may
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
		if h := (&home{dir: dir}); h.acquire() == nil {
			_ = h.removeServers()
			h.release()
		}
	}
}

// Remove deletes the folder of a server that does not run, by the name it was given as Dir, with all data. Unlike
// os.RemoveAll it also deletes files kept elsewhere behind a symbolic link, and stops a server that a killed parent
// left there. It refuses a folder in use, and one that no server has used. A missing folder is no error.
func Remove(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := remove(dir); err != nil {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}

func remove(dir string) error {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	h := &home{dir: real}
	if _, err := os.Lstat(h.path(lockName)); err != nil {
		return fmt.Errorf("it is not a server's folder: %w", err)
	}
	if err := h.acquire(); err != nil {
		return err
	}
	defer h.release()
	if err := h.clear(); err != nil {
		return err
	}
	return os.RemoveAll(dir) // the link: while it stands, a failed removal can be repeated
}
