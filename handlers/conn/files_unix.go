//go:build unix

package conn

import (
	"math"
	"syscall"
)

func fileLimit() int {
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) // fails for other resources only
	return int(min(limit.Cur, math.MaxInt32))
}
