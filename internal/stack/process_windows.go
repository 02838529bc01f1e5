package stack

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/windows"
)

// Credential is the user as which a process runs: always this one's.
type Credential struct{ Uid, Gid uint32 } //nolint:revive // as elsewhere

// Windows cannot pause a process: the error of Pause says so.
const pauseSignal, resumeSignal = syscall.Signal(0x13), syscall.Signal(0x12)

// OwnGroup keeps Ctrl-C at the terminal from a command.
func OwnGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// SignalGroup ends a process and what it has started, whatever the signal.
func SignalGroup(pid int, _ syscall.Signal) error {
	return exec.CommandContext(context.Background(), "taskkill", "/T", "/F", "/PID", strconv.Itoa(pid)).Run()
}

func runAs(*exec.Cmd, *Credential, syscall.Signal) {}

func signalName(s syscall.Signal) string { return s.String() }

// lockFile locks an open file for this process, without waiting.
func lockFile(f *os.File) (busy bool, err error) {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	err = windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, &windows.Overlapped{})
	return errors.Is(err, windows.ERROR_LOCK_VIOLATION), err
}

func unlockFile(f *os.File) {
	_ = windows.UnlockFileEx(windows.Handle(f.Fd()), 0, 1, 0, &windows.Overlapped{})
}

func ownerOf(fs.FileInfo) (uid, gid uint32, ok bool) { return 0, 0, false }
