//go:build unix

package conn

import (
	"math"
	"syscall"
)

func fileLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return leastReserve * 4 // what the smallest systems allow
	}
	return int(min(limit.Cur, math.MaxInt32))
}
