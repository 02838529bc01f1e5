package stack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
)

func dieWithParent(attr *syscall.SysProcAttr, s syscall.Signal) { attr.Pdeathsig = s }

// commandLine returns the arguments of a process; nothing useful when it does
// not exist or is ending.
func commandLine(_ context.Context, pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00")
}

// hasEnded reports whether a process has ended; one that nobody has reaped yet has.
func hasEnded(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The state follows the name, which is in parentheses and may hold some.
	end := bytes.LastIndexByte(raw, ')')
	return end < 0 || bytes.HasPrefix(raw[end:], []byte(") Z"))
}
