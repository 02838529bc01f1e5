package stack

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"golang.org/x/sys/windows"
)

// Credential is unused: on Windows every process runs as this process's user.
type Credential struct{ Uid, Gid uint32 } //nolint:revive // the names of syscall.Credential

// Windows cannot pause a process. os.Process.Signal returns an error for these signals.
const pauseSignal, resumeSignal = syscall.Signal(0x13), syscall.Signal(0x12)

// OwnGroup makes a command run in its own process group, so it ignores Ctrl-C at the terminal.
func OwnGroup(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
}

// SignalGroup ends a process and its children, for any signal.
func SignalGroup(pid int, _ syscall.Signal) error {
	return exec.CommandContext(context.Background(), "taskkill", "/T", "/F", "/PID", strconv.Itoa(pid)).Run()
}

func runAs(*exec.Cmd, *Credential, syscall.Signal) {}

func signalName(s syscall.Signal) string { return s.String() }

// lockFile is only used for servers, which do not run on Windows.
func lockFile(*os.File) (busy bool, err error) { return false, errWindows }

func unlockFile(*os.File) {}

func ownerOf(fs.FileInfo) Credential { return Credential{} }
