//go:build unix

package term

import (
	"os/signal"
	"syscall"
)

// IgnoreReads lets reads from a terminal fail while this process is in its background, which would stop it.
func IgnoreReads() { signal.Ignore(syscall.SIGTTIN) }
