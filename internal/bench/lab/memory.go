package lab

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
	"github.com/redis/go-redis/v9"
)

// RedisMemory is what the Redis server has allocated, in bytes.
func RedisMemory(ctx context.Context, client *redis.Client) (float64, error) {
	info, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	value, err := infoLine(info, "used_memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(value, 64)
}

// infoLine gives the value of one line of Redis' INFO.
func infoLine(info, name string) (string, error) {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("there is no line %q", name)
}

// ProcessMemory is a process' resident memory and the most that it ever was, in
// MB of a million bytes.
func ProcessMemory(pid int) (now, peak float64, err error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, 0, err
	}
	status, err := proc.NewStatus()
	return float64(status.VmRSS) / 1e6, float64(status.VmHWM) / 1e6, err
}
