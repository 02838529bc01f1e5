package lab

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/forgerun/forgerun/internal/stack"
)

// Usage is the CPU time, in seconds, of each group of processes so far, or what
// it grew by from one moment to another. It shows what bounds a rate.
type Usage struct {
	At                                      time.Time
	API, Worker, Postgres, Redis, Generator float64
	Machine                                 float64 // all processes, the groups' included; 0: unknown
	Stolen                                  float64 // what a virtual machine's host gave to others meanwhile
	Took                                    float64 // seconds; of a difference
}

// Usage of a system and of its worker, if there is one, with all their descendants.
func (l *Lab) Usage(sys System, worker *stack.Process) Usage {
	p := readProcesses()
	u := Usage{
		At: time.Now(), API: p.tree(sys.API.PID()), Worker: p.tree(worker.PID()), Postgres: p.tree(l.Servers.Postgres.PID()),
		Redis: p.tree(l.Servers.Redis.PID()), Generator: ownCPU(),
	}
	u.Machine, u.Stolen = machineCPU()
	return u
}

// AtRest gives what a system uses within the window while nothing is asked of it.
func (l *Lab) AtRest(ctx context.Context, window time.Duration, sys System, worker *stack.Process) Usage {
	Pause(ctx, Quiet)
	before := l.Usage(sys, worker)
	Pause(ctx, window)
	return l.Usage(sys, worker).Since(before)
}

// Since gives the difference.
func (u Usage) Since(before Usage) Usage {
	return Usage{
		At: u.At, Took: u.At.Sub(before.At).Seconds(), API: u.API - before.API, Worker: u.Worker - before.Worker,
		Postgres: u.Postgres - before.Postgres, Redis: u.Redis - before.Redis, Generator: u.Generator - before.Generator,
		Machine: u.Machine - before.Machine, Stolen: u.Stolen - before.Stolen,
	}
}

// CoreShare is what worker, Postgres and Redis took, in percent of a core.
func (u Usage) CoreShare() float64 { return 100 * (u.Worker + u.Postgres + u.Redis) / u.Took }

// Service is what the system used: everything but the load generator.
func (u Usage) Service() float64 { return u.API + u.Worker + u.Postgres + u.Redis }

// String gives the shares of all cores.
func (u Usage) String() string { return u.shares(runtime.NumCPU()) }

func (u Usage) shares(cores int) string {
	all := u.Took * float64(cores)
	if all <= 0 {
		return "CPU unknown"
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "CPU of %d cores:", cores)
	for _, g := range []struct {
		name    string
		seconds float64
	}{{"api", u.API}, {"worker", u.Worker}, {"Postgres", u.Postgres}, {"Redis", u.Redis}, {"generator", u.Generator}} {
		_, _ = fmt.Fprintf(&b, " %s %.0f %%,", g.name, 100*g.seconds/all)
	}
	if u.Machine <= 0 {
		return strings.TrimSuffix(b.String(), ",")
	}
	others := max(0, u.Machine-u.Service()-u.Generator)
	_, _ = fmt.Fprintf(&b, " others %.0f %%, taken by the host %.0f %%, idle %.0f %%",
		100*others/all, 100*u.Stolen/all, 100*max(0, 1-(u.Machine+u.Stolen)/all))
	return b.String()
}

// ownCPU is the user and system time of this process alone.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// processes is a reading of /proc; where there is none, all times are 0.
type processes struct {
	children map[int][]int
	used     map[int]float64 // seconds, those of ended children included
}

// ticks is USER_HZ, the same on every Linux that matters here.
const ticks = 100

func readProcesses() processes {
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

// scheduled is the time of a process' threads as the scheduler counts it: what an
// idle process uses is less than a tick. 0 where the kernel does not count it.
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
	if root == 0 {
		return 0
	}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		seconds += p.used[queue[0]]
		queue = append(queue, p.children[queue[0]]...)
	}
	return seconds
}

// machineCPU is the time that the machine was busy, and that its host took.
func machineCPU() (busy, stolen float64) {
	proc, _ := procfs.NewDefaultFS()
	stat, _ := proc.Stat() // where there is no /proc, all times are 0
	c := stat.CPUTotal
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ, c.Steal
}

// ServersCPU is the CPU time of Postgres and Redis so far, in seconds.
func (l *Lab) ServersCPU() float64 {
	p := readProcesses()
	return p.tree(l.Servers.Postgres.PID()) + p.tree(l.Servers.Redis.PID())
}

// ProcessCPU returns the CPU time of a process so far, in seconds.
func ProcessCPU(p *stack.Process) float64 { return readProcesses().tree(p.PID()) }
