//go:build unix

package stack

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Credential is the user that a process runs as.
type Credential = syscall.Credential

const pauseSignal, resumeSignal = syscall.SIGSTOP, syscall.SIGCONT

// OwnGroup makes a command run in its own process group.
func OwnGroup(c *exec.Cmd) {
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true
}

// SignalGroup sends a signal to the process group created by OwnGroup.
func SignalGroup(pid int, s syscall.Signal) error { return syscall.Kill(-pid, s) }

func runAs(c *exec.Cmd, user *Credential, death syscall.Signal) {
	c.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	dieWithParent(c.SysProcAttr, death)
}

func signalName(s syscall.Signal) string { return unix.SignalName(s) }

func lockFile(f *os.File) (busy bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	return errors.Is(err, syscall.EWOULDBLOCK), err
}

func unlockFile(f *os.File) { _ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

func ownerOf(info fs.FileInfo) Credential {
	stat, _ := info.Sys().(*syscall.Stat_t) // os.Stat always returns this type
	return Credential{Uid: stat.Uid, Gid: stat.Gid}
}
