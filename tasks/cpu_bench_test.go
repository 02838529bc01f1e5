package tasks_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/forgerun/forgerun/tasks/redistest"
)

// cpu measures what a benchmark costs this process and Redis, in µs of CPU a
// task.
type cpu struct{ own, redis float64 }

func cpuNow(b *testing.B) cpu {
	b.Helper()
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	micros := func(t syscall.Timeval) float64 { return float64(t.Sec)*1e6 + float64(t.Usec) }
	return cpu{micros(own.Utime) + micros(own.Stime), redisCPU(b)}
}

func redisCPU(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", redistest.Shared(b).PID()))
	if err != nil {
		return 0 // not Linux
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')'):]))
	user, _ := strconv.ParseFloat(fields[12-1], 64)
	system, _ := strconv.ParseFloat(fields[13-1], 64)
	return (user + system) * 1e4
}

func (c cpu) report(b *testing.B) {
	b.Helper()
	now := cpuNow(b)
	b.ReportMetric((now.own-c.own)/float64(b.N), "own-µs/task")
	b.ReportMetric((now.redis-c.redis)/float64(b.N), "redis-µs/task")
}
