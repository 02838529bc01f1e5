package main

import (
	"syscall"
)

// dieWithTest ends a process, paused or not, when the test binary is killed.
func dieWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
