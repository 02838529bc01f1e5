package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// dieWithTest makes the kernel kill a process when the test binary is killed, even if the process is paused.
func dieWithTest() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

func allThreadsStopped(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil { // the thread has ended
			continue
		}
		_, state, _ := bytes.Cut(stat, []byte(") "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}
