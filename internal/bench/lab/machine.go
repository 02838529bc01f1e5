package lab

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
)

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
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
			return cpus[0].ModelName
		}
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
	changed, err := exec.CommandContext(ctx, "git", "--no-optional-locks", "status", "--porcelain").Output()
	if err == nil && len(changed) > 0 {
		name += " with changes"
	}
	return name
}
