//go:build unix && !linux

package stack

import (
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing: only Linux has death signals.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// commandLine returns the arguments of a process; empty when it does not exist.
// An argument with spaces comes as several.
func commandLine(ctx context.Context, pid int) []string {
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return nil
	}
	return strings.Fields(string(out))
}

// hasEnded reports whether a process has ended.
func hasEnded(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
