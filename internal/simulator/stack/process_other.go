//go:build unix && !linux

package stack

import "syscall"

// dieWithParent does nothing: the system has no such wish.
func dieWithParent(*syscall.SysProcAttr) {}
