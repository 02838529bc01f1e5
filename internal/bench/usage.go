package main

import (
	"cmp"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/forgerun/forgerun/internal/stack"
)

// usage is the CPU time, in seconds, of each group of processes so far, or its growth between two moments. It shows which process limits
// a rate.
type usage struct {
	at                                      time.Time
	api, worker, postgres, redis, generator float64
	took                                    float64 // seconds; of a difference
}

// use reads the usage of a system and its worker, if there is one, with all their descendants.
func (l *lab) use(sys system, worker *stack.Process) usage {
	p := readProcesses()
	return usage{
		at: time.Now(), api: p.tree(sys.api.PID()), worker: p.tree(worker.PID()), postgres: p.tree(l.servers.Postgres.PID()),
		redis: p.tree(l.servers.Redis.PID()), generator: ownCPU(),
	}
}

func (u usage) since(before usage) usage {
	return usage{
		at: u.at, took: u.at.Sub(before.at).Seconds(), api: u.api - before.api, worker: u.worker - before.worker,
		postgres: u.postgres - before.postgres, redis: u.redis - before.redis, generator: u.generator - before.generator,
	}
}

// service is everything but the load generator.
func (u usage) service() float64 { return u.api + u.worker + u.postgres + u.redis }

// String returns the shares of all cores.
func (u usage) String() string { return u.shares(runtime.NumCPU()) }

func (u usage) shares(cores int) string {
	of := func(seconds float64) float64 { return 100 * seconds / (u.took * float64(cores)) }
	return fmt.Sprintf("CPU of %d cores: api %.0f %%, worker %.0f %%, Postgres %.0f %%, Redis %.0f %%, generator %.0f %%", cores,
		of(u.api), of(u.worker), of(u.postgres), of(u.redis), of(u.generator))
}

// serversCPU is the CPU time of Postgres and Redis so far, in seconds.
func (l *lab) serversCPU() float64 {
	p := readProcesses()
	return p.tree(l.servers.Postgres.PID()) + p.tree(l.servers.Redis.PID())
}

// ownCPU is the user and system time of this process.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// processes is a reading of /proc; without one, all times are 0.
type processes struct {
	children map[int][]int
	used     map[int]float64 // seconds, with those of ended children
}

func readProcesses() processes {
	const ticks = 100 // USER_HZ, the same on every Linux that matters here
	p := processes{children: map[int][]int{}, used: map[int]float64{}}
	all, _ := procfs.AllProcs()
	for _, proc := range all {
		stat, err := proc.Stat()
		if err != nil {
			continue // it has just ended
		}
		p.children[stat.PPID] = append(p.children[stat.PPID], proc.PID)
		p.used[proc.PID] = cmp.Or(scheduled(proc.PID), stat.CPUTime()) + float64(stat.CUTime+stat.CSTime)/ticks
	}
	return p
}

// scheduled is the time of a process' threads as the scheduler counts it: an idle process uses less than a tick. 0: not counted.
func scheduled(pid int) (seconds float64) {
	threads, _ := procfs.AllThreads(pid)
	for _, thread := range threads {
		if stat, err := thread.Schedstat(); err == nil {
			seconds += time.Duration(stat.RunningNanoseconds).Seconds()
		}
	}
	return seconds
}

// tree sums a process and its descendants; 0 is no process.
func (p processes) tree(root int) (seconds float64) {
	for queue := []int{root}; root != 0 && len(queue) > 0; queue = queue[1:] {
		seconds += p.used[queue[0]]
		queue = append(queue, p.children[queue[0]]...)
	}
	return seconds
}
