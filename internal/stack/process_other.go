//go:build unix && !linux

package stack

import "syscall"

// dieWithParent does nothing: only Linux has death signals.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}
