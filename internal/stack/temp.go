package stack

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// Servers are a temporary Postgres and Redis.
type Servers struct {
	Postgres *Postgres // nil: none
	Redis    *Redis    // nil: none

	folder home // parent folder of the servers' folders; this process holds its lock
}

const tempPrefix = "forgerun-stack-"

// Temp starts temporary servers. A server with nil options is not started. Servers.Close stops them and removes their files. If this
// process is killed, the next Temp stops and removes the servers. After an error, no server runs.
func Temp(ctx context.Context, postgres, redis *ServerOptions) (*Servers, error) {
	return tempIn(ctx, os.TempDir(), postgres, redis)
}

func tempIn(ctx context.Context, parent string, postgres, redis *ServerOptions) (*Servers, error) {
	sweepTemp(parent)
	dir, err := MkdirTemp(parent, tempPrefix)
	if err != nil {
		return nil, err
	}
	s := &Servers{folder: home{dir: dir}}
	both, starting := errgroup.WithContext(ctx)
	if err = s.folder.acquire(); err == nil && redis != nil {
		both.Go(func() (err error) {
			s.Redis, err = StartRedis(starting, redis.temporary(s.folder.path("redis")))
			return err
		})
	}
	if err == nil && postgres != nil {
		both.Go(func() (err error) {
			s.Postgres, err = StartPostgres(starting, postgres.temporary(s.folder.path("postgres")))
			return err
		})
	}
	if err = errors.Join(err, both.Wait()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (o ServerOptions) temporary(dir string) ServerOptions {
	o.Dir, o.throwaway = dir, true
	return o
}

// Close kills the servers and removes their files. Further calls do nothing.
func (s *Servers) Close() error {
	var errs []error
	if s.Redis != nil {
		errs = append(errs, s.Redis.Kill())
	}
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Kill())
	}
	err := errors.Join(append(errs, s.folder.removeServers())...)
	s.folder.release()
	return err
}

// removeServers removes the folder. Before that, it stops servers that still run in the folder because their parent process was killed.
func (h *home) removeServers() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for _, name := range []string{"redis", "postgres"} {
		f, err := (&home{dir: h.path(name)}).claim(ctx, slog.New(slog.DiscardHandler))
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(h.dir)
}

// MkdirTemp creates a temporary folder. If this process runs as root, the servers' user can enter it.
func MkdirTemp(parent, prefix string) (string, error) {
	dir, err := os.MkdirTemp(parent, prefix)
	if err != nil || os.Geteuid() != 0 {
		return dir, err
	}
	return dir, os.Chmod(dir, 0o711)
}

// sweepTemp removes folders that killed processes have left. Such a folder is not locked. A folder that is less than a minute old is
// skipped, because its process may not have locked it yet.
func sweepTemp(parent string) {
	dirs, _ := filepath.Glob(filepath.Join(parent, tempPrefix+"*")) // fails for bad patterns only
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute ||
			int(ownerOf(info).Uid) != os.Geteuid() { // skip other users' folders: anyone can create a folder with this prefix
			continue
		}
		if h := (&home{dir: dir}); h.acquire() == nil {
			_ = h.removeServers()
			h.release()
		}
	}
}
