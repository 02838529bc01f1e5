//go:build unix

package term

import (
	"os/signal"
	"syscall"
)

// IgnoreReads makes terminal reads fail while this process is in the background. Otherwise Unix would stop the process.
func IgnoreReads() { signal.Ignore(syscall.SIGTTIN) }
