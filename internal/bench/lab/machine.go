package lab

import (
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
	defer func() { _ = conn.Close(ctx) }()
	var postgres string
	if err := conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&postgres); err != nil {
		return nil, err
	}
	client, err := l.Redis()
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	redis, err := infoLine(info, "redis_version")
	if err != nil {
		redis = "unknown" // another server with the same protocol
	}
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
