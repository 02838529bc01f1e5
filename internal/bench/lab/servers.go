package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"

	"github.com/forgerun/forgerun/internal/devstack"
)

const module = "github.com/forgerun/forgerun"

// New builds the service and starts the servers. Postgres has the given settings on
// top of its own.
func New(ctx context.Context, o Options, settings map[string]string) (*Lab, error) {
	dir, err := os.MkdirTemp("", "forgerun-bench-")
	if err != nil {
		return nil, err
	}
	l := &Lab{Options: o, Dir: dir, program: filepath.Join(dir, "forgerun")}
	fmt.Println("building, starting Postgres and Redis (fsync, synchronous_commit and AOF on)")
	if err = build(ctx, l.program); err == nil {
		postgres := map[string]string{"max_connections": "200", "shared_buffers": "512MB", "max_wal_size": "8GB"}
		maps.Copy(postgres, settings)
		l.Servers, err = devstack.Temp(ctx, devstack.TempOptions{Postgres: postgres, Redis: map[string]string{"databases": "1024"}})
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l, nil
}

// Close stops the servers and removes all files.
func (l *Lab) Close() error { return errors.Join(l.Servers.Close(), os.RemoveAll(l.Dir)) }

func build(ctx context.Context, path string, flags ...string) error {
	args := append(append([]string{"build", "-o", path}, flags...), module+"/cmd/forgerun")
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, out)
	}
	return nil
}

// BuildUncounted builds the service with internal/bench/uncounted/telemetry in the
// place of its own metrics.
func BuildUncounted(ctx context.Context, dir string) (path string, err error) {
	found, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", module+"/internal/telemetry").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	counted := strings.TrimSpace(string(found))
	overlay := fmt.Appendf(nil, `{"Replace": {%q: %q}}`, filepath.Join(counted, "metrics.go"),
		filepath.Join(counted, "..", "bench", "uncounted", "telemetry", "metrics.go"))
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return "", err
	}
	path = filepath.Join(dir, "forgerun-uncounted")
	return path, build(ctx, path, "-overlay", list)
}

// Description names the time, the commit, the machine and the servers.
func (l *Lab) Description(ctx context.Context) ([]string, error) {
	conn, err := pgx.Connect(ctx, l.Servers.Postgres.URL())
	if err != nil {
		return nil, err
	}
	postgres, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	_ = conn.Close(ctx)
	client, err := l.Redis()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	info := client.InfoMap(ctx, "server")
	if info.Err() != nil {
		return nil, info.Err()
	}
	redis := cmp.Or(info.Item("Server", "redis_version"), "unknown")
	return []string{
		time.Now().Format("2006-01-02 15:04 MST"), "commit " + commit(ctx), fmt.Sprintf("%d cores, %s", runtime.NumCPU(), cpuModel()),
		strings.Replace(runtime.Version(), "go", "Go ", 1), "Postgres " + postgres, "Redis " + redis,
	}, nil
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
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	if changed, _ := exec.CommandContext(ctx, "git", "--no-optional-locks", "status", "--porcelain").Output(); len(changed) > 0 {
		name += " with changes"
	}
	return name
}
