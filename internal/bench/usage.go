package main

import (
	"cmp"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// usage has the CPU seconds that each process used from `from` to `to`, by the name of the process.
type usage struct {
	from, to time.Time
	cpu      sample
}

func (s system) while(do func()) usage {
	began, before := time.Now(), s.cpu()
	do()
	u := usage{from: began, to: time.Now(), cpu: s.cpu()}
	for name := range u.cpu {
		u.cpu[name] -= before[name]
	}
	return u
}

func (s system) cpu() sample {
	processes := readProcesses()
	seconds := sample{
		"generator": ownCPU(), "Postgres": processes.tree(s.servers.Postgres.PID()), "Redis": processes.tree(s.servers.Redis.PID()),
	}
	for role, p := range s.running {
		seconds[role] = processes.tree(p.PID())
	}
	return seconds
}

func (u usage) seconds() float64 { return u.to.Sub(u.from).Seconds() }

func (u usage) String() string {
	return fmt.Sprintf("%.1f s on %d cores, CPU seconds: %v", u.seconds(), runtime.NumCPU(), u.cpu)
}

func (u usage) of(names ...string) (seconds float64) {
	for _, name := range names {
		seconds += u.cpu[name]
	}
	return seconds
}

func (u usage) service() float64 { return u.of("api", "worker", "Postgres", "Redis") }

func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// On systems without /proc, all times are 0.
type processes struct {
	children map[int][]int
	used     map[int]float64 // CPU seconds, including ended children
}

func readProcesses() processes {
	const ticks = 100 // USER_HZ: clock ticks per second
	p := processes{children: map[int][]int{}, used: map[int]float64{}}
	all, _ := procfs.AllProcs()
	for _, proc := range all {
		if stat, err := proc.Stat(); err == nil { // Stat fails if the process has just ended
			p.children[stat.PPID] = append(p.children[stat.PPID], proc.PID)
			p.used[proc.PID] = cmp.Or(scheduled(proc.PID), stat.CPUTime()) + float64(stat.CUTime+stat.CSTime)/ticks
		}
	}
	return p
}

// scheduled returns the CPU time of all threads of a process, from /proc/PID/task/*/schedstat; 0 if that cannot be read. The times in
// /proc/PID/stat are multiples of 10 ms, too coarse for an idle process.
func scheduled(pid int) (seconds float64) {
	threads, _ := procfs.AllThreads(pid)
	for _, thread := range threads {
		if stat, err := thread.Schedstat(); err == nil {
			seconds += time.Duration(stat.RunningNanoseconds).Seconds()
		}
	}
	return seconds
}

func (p processes) tree(root int) (seconds float64) {
	for queue := []int{root}; root != 0 && len(queue) > 0; queue = queue[1:] {
		seconds += p.used[queue[0]]
		queue = append(queue, p.children[queue[0]]...)
	}
	return seconds
}
