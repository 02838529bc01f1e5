package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// about says when, of what and on what the figures were taken.
func (s *stack) about(ctx context.Context) ([]string, error) {
	conn, err := pgx.Connect(ctx, s.servers.Postgres.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var postgres string
	if err := conn.QueryRow(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&postgres); err != nil {
		return nil, err
	}
	client, err := redisClient(s.servers.Redis.URL())
	if err != nil {
		return nil, err
	}
	defer func() { _ = client.Close() }()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	return []string{
		time.Now().Format("2006-01-02 15:04 MST"), "commit " + commit(ctx), fmt.Sprintf("%d cores, %s", runtime.NumCPU(), cpuModel()),
		strings.Replace(runtime.Version(), "go", "Go ", 1), "Postgres " + postgres, "Redis " + first(redisVersion, info),
	}, nil
}

var (
	redisVersion = regexp.MustCompile(`(?m)^redis_version:(\S+)`)
	modelName    = regexp.MustCompile(`(?m)^model name\s*: (.*)$`)
)

// first gives a pattern's group.
func first(pattern *regexp.Regexp, text string) string {
	if found := pattern.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	return "unknown"
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	return first(modelName, string(text))
}

// commit is what is checked out, and says so if the files differ from it.
func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	if changed, err := exec.CommandContext(ctx, "git", "--no-optional-locks", "status", "--porcelain").Output(); err == nil && len(changed) > 0 {
		name += " with changes"
	}
	return name
}
