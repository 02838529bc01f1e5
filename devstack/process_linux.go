package devstack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
)

func dieWithParent(attr *syscall.SysProcAttr, s syscall.Signal) { attr.Pdeathsig = s }

// commandLine returns the arguments of a process; empty when it does not exist
// or is a zombie.
func commandLine(_ context.Context, pid int) []string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(string(bytes.TrimRight(raw, "\x00")), "\x00")
}
