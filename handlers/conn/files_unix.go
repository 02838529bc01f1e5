//go:build unix

package conn

import (
	"math"
	"syscall"
)

func fileLimit() int {
	var limit syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) // cannot fail for this resource
	return int(min(limit.Cur, math.MaxInt32))
}
