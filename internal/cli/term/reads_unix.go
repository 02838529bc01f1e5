//go:build unix

package term

import (
	"os/signal"
	"syscall"
)

// IgnoreReads ignores SIGTTIN. A background process that reads from the terminal then gets an error. Without IgnoreReads, Unix would stop
// the process.
func IgnoreReads() { signal.Ignore(syscall.SIGTTIN) }
