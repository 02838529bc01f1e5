package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Bounds of the garbage collector. Most processes use a few megabytes: with Go's default they would collect many times a
// second. One that runs thousands of jobs has large stacks, which Go's default answers with as much heap again.
const (
	garbageAllowed = 48 << 20 // bytes of garbage before a collection, or half of the heap in use if that is more
	garbageShare   = 6        // in a container: at most so many times less than its memory
	maxGCPercent   = 400      // what GOGC would be at most
	minGCPercent   = 20
)

// memoryLimits are where Linux tells a process in a container how much memory it may have, in bytes: versions 2 and 1 of cgroups.
var memoryLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// paceGarbage adjusts how much garbage may gather, after each collection, until the process ends. An operator's GOGC or
// GOMEMLIMIT stands instead.
func paceGarbage(getenv func(string) string) {
	if getenv("GOGC") != "" || getenv("GOMEMLIMIT") != "" {
		return
	}
	current, allowed := maxGCPercent, allowedGarbage(memoryLimits)
	debug.SetGCPercent(current)
	afterEachCollection(func() {
		heap, roots := measureMemory()
		if percent := gcPercent(allowed, heap, roots); percent < current*9/10 || percent > current*11/10 { // each change stops the process
			current = percent
			debug.SetGCPercent(percent)
		}
	})
}

// allowedGarbage is less than usual in a small container. Without a limit the files say "max", or a number beyond any machine's.
func allowedGarbage(files []string) uint64 {
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseUint(strings.TrimSpace(string(content)), 10, 64); err == nil {
			return min(garbageAllowed, limit/garbageShare)
		}
	}
	return garbageAllowed
}

// gcPercent is what GOGC must be: Go applies it to the heap in use and to the roots, which are stacks and globals.
func gcPercent(allowed, heap, roots uint64) int {
	allowed = max(allowed, heap/2)
	return int(min(maxGCPercent, max(minGCPercent, allowed*100/max(1, heap+roots))))
}

// afterEachCollection calls do, one call at a time.
func afterEachCollection(do func()) {
	type marker struct{ _ *byte } // with a pointer, so that it is not allocated together with others
	var renew func(*marker)
	renew = func(*marker) {
		do()
		runtime.SetFinalizer(&marker{}, renew)
	}
	runtime.SetFinalizer(&marker{}, renew)
}

// measureMemory gives the bytes that the last collection found in use, on the heap and in its roots.
func measureMemory() (heap, roots uint64) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	return samples[0].Value.Uint64(), samples[1].Value.Uint64() + samples[2].Value.Uint64()
}
