package doctor

import (
	"fmt"
	"syscall"
)

// What a process needs of file descriptors beside its clients' connections:
// stores, listeners, logs, files of jobs. See docs/operations.md.
const (
	ownFiles   = 100
	leastFiles = 4_096 // below, a usual number of clients meets the limit
)

// fileLimit is the highest number of files that this process may have open, 0
// for unknown. A role that is started in the same place has the same, and takes
// all of it.
func fileLimit() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Max) //nolint:unconvert // int64 on some systems
}

func (fs *Findings) judgeFiles(role string, limit uint64) {
	const what = "file descriptors"
	const advice = "raise the hard limit of the service (LimitNOFILE= of systemd, ulimits of compose, ulimit -Hn)"
	if limit == 0 {
		return
	}
	found := fmt.Sprintf("at most %d here: room for about %d connections", limit, max(limit, ownFiles)-ownFiles)
	switch {
	case limit < 2*ownFiles:
		fs.Fail(what, found, advice)
	case limit < leastFiles && role != "worker":
		fs.Warn(what, found, advice)
	default:
		fs.OK(what, found)
	}
}
