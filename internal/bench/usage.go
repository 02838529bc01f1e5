package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is the CPU time, in seconds, of each group of processes so far, or what
// it grew by from one moment to another. It says what bounds a rate.
type usage struct {
	at                                      time.Time
	api, worker, postgres, redis, generator float64
	machine                                 float64 // all processes, the groups' included; 0: unknown
	stolen                                  float64 // what a virtual machine's host gave to others meanwhile
	took                                    float64 // seconds; of a difference
}

// usage of a system and of its workers, with all their descendants.
func (s *stack) usage(sys system, workers ...*program) usage {
	p := readProcesses()
	u := usage{
		at: time.Now(), api: p.tree(sys.api.pid()), postgres: p.tree(s.servers.Postgres.PID()), redis: p.tree(s.servers.Redis.PID()),
		generator: ownCPU(),
	}
	u.machine, u.stolen = machineCPU()
	for _, w := range workers {
		u.worker += p.tree(w.pid())
	}
	return u
}

func (u usage) since(before usage) usage {
	return usage{
		at: u.at, took: u.at.Sub(before.at).Seconds(), api: u.api - before.api, worker: u.worker - before.worker, postgres: u.postgres - before.postgres,
		redis: u.redis - before.redis, generator: u.generator - before.generator, machine: u.machine - before.machine, stolen: u.stolen - before.stolen,
	}
}

// service is what the system needs: everything but the load generator.
func (u usage) service() float64 { return u.api + u.worker + u.postgres + u.redis }

// String gives the shares of all cores.
func (u usage) String() string { return u.shares(runtime.NumCPU()) }

func (u usage) shares(cores int) string {
	all := u.took * float64(cores)
	if all <= 0 {
		return "CPU unknown"
	}
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "CPU of %d cores:", cores)
	for _, g := range []struct {
		name    string
		seconds float64
	}{{"api", u.api}, {"worker", u.worker}, {"Postgres", u.postgres}, {"Redis", u.redis}, {"generator", u.generator}} {
		_, _ = fmt.Fprintf(&b, " %s %.0f %%,", g.name, 100*g.seconds/all)
	}
	if u.machine <= 0 {
		return strings.TrimSuffix(b.String(), ",")
	}
	others := max(0, u.machine-u.service()-u.generator)
	_, _ = fmt.Fprintf(&b, " others %.0f %%, taken by the host %.0f %%, idle %.0f %%",
		100*others/all, 100*u.stolen/all, 100*max(0, 1-(u.machine+u.stolen)/all))
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

// processes is a reading of /proc; elsewhere there is none, and all times are 0.
type processes struct {
	children map[int][]int
	spent    map[int]float64 // seconds, those of children included that have ended and were waited for
}

// ticks is USER_HZ, the same on every Linux that matters here.
const ticks = 100

func readProcesses() processes {
	p := processes{children: map[int][]int{}, spent: map[int]float64{}}
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(folder + "/stat")
		if err != nil {
			continue // it has just ended
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		parent, _ := strconv.Atoi(fields[1])
		p.children[parent] = append(p.children[parent], pid)
		own := ticked(fields[11:13])
		if precise := scheduled(folder); precise > 0 {
			own = precise
		}
		p.spent[pid] = own + ticked(fields[13:15])
	}
	return p
}

// ticked sums times in ticks: utime and stime, or those of ended children.
func ticked(fields []string) (seconds float64) {
	for _, field := range fields {
		n, _ := strconv.ParseFloat(field, 64)
		seconds += n / ticks
	}
	return seconds
}

// scheduled is the time of a process' threads in nanoseconds, as the scheduler
// counts it: what an idle process needs is less than a tick. 0 where the kernel
// does not tell.
func scheduled(folder string) (seconds float64) {
	threads, _ := filepath.Glob(folder + "/task/*/schedstat")
	for _, thread := range threads {
		text, _ := os.ReadFile(thread)
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			n, _ := strconv.ParseFloat(fields[0], 64)
			seconds += n / 1e9
		}
	}
	return seconds
}

// tree sums a process and its descendants.
func (p processes) tree(root int) (seconds float64) {
	if root == 0 {
		return 0
	}
	for queue := []int{root}; len(queue) > 0; queue = queue[1:] {
		seconds += p.spent[queue[0]]
		queue = append(queue, p.children[queue[0]]...)
	}
	return seconds
}

// machineCPU is the time that the machine was busy, and that its host took.
func machineCPU() (busy, stolen float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line) // cpu user nice system idle iowait irq softirq steal
	if len(fields) < 9 {
		return 0, 0
	}
	return ticked(fields[1:4]) + ticked(fields[6:8]), ticked(fields[8:9])
}
