package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/internal/stack"
)

// New builds the service and starts the servers.
func New(ctx context.Context, o Options) (*Lab, error) {
	dir, err := os.MkdirTemp("", "forgerun-bench-")
	if err != nil {
		return nil, err
	}
	l := &Lab{Options: o, Dir: dir, Programs: []Service{{"ForgeRun", filepath.Join(dir, "forgerun"), slots}}}
	if o.Against != "" {
		path, err := filepath.Abs(o.Against)
		if err != nil {
			return nil, err
		}
		l.Programs = append(l.Programs, Service{o.Against, path, slots})
	}
	fmt.Println("building, starting Postgres and Redis (fsync, synchronous_commit and AOF on)")
	if err = Build(ctx, ".", l.Programs[0].Path, "github.com/forgerun/forgerun/cmd/forgerun"); err == nil {
		l.Servers, err = stack.Temp(ctx, &stack.ServerOptions{
			Settings: map[string]string{"max_connections": "200", "shared_buffers": "512MB", "max_wal_size": "8GB"},
		}, &stack.ServerOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l, nil
}

// Close stops the servers and removes all files.
func (l *Lab) Close() error { return errors.Join(l.Servers.Close(), os.RemoveAll(l.Dir)) }

// Build builds a program of the module in a folder.
func Build(ctx context.Context, module, path, pkg string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	build.Dir = module
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// Description names the time, the commit, the machine and the servers.
func (l *Lab) Description(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, l.Servers.Postgres.URL())
	if err != nil {
		return "", err
	}
	postgres, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	address, err := redis.ParseURL(l.Servers.Redis.URL())
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return "", err
	}
	client := redis.NewClient(address)
	defer func() { _ = client.Close() }()
	version := client.InfoMap(ctx, "server").Item("Server", "redis_version")
	return fmt.Sprintf("%s; commit %s; %d cores, %s; %s; Postgres %s; Redis %s", time.Now().Format("2006-01-02 15:04 MST"), commit(ctx),
		runtime.NumCPU(), cpuModel(), strings.Replace(runtime.Version(), "go", "Go ", 1), postgres, version), nil
}

func cpuModel() string {
	proc, _ := procfs.NewDefaultFS()
	if cpus, _ := proc.CPUInfo(); len(cpus) > 0 {
		return cmp.Or(cpus[0].ModelName, runtime.GOARCH)
	}
	return runtime.GOARCH
}

// commit is what is checked out, and whether the files differ from it.
func commit(ctx context.Context) string {
	described, err := exec.CommandContext(ctx, "git", "--no-optional-locks", "describe", "--always", "--dirty=-changed").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(described))
}
