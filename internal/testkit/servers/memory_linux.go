package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// memoryNeeded is several times the space that all tests use at once.
const memoryNeeded = 6 << 30

// inMemory sets TMPDIR to a new folder in memory (/dev/shm). It leaves TMPDIR unchanged if there is too little memory, or programs cannot
// run in the folder. Servers and browsers create thousands of files, which cost much CPU time on a disk. GOTMPDIR stays on the disk,
// because the files of the go command are larger.
func inMemory() (remove func() error, err error) {
	const parent = "/dev/shm"
	var of syscall.Statfs_t
	if syscall.Statfs(parent, &of) != nil || of.Bavail*uint64(of.Bsize) < memoryNeeded {
		return func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp(parent, "forgerun-")
	if err != nil {
		return nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	probe := filepath.Join(dir, "probe")
	err = os.WriteFile(probe, []byte("#!/bin/sh\n"), 0o700)
	if err != nil || exec.CommandContext(context.Background(), probe).Run() != nil {
		return remove, err
	}
	for name, value := range map[string]string{"GOTMPDIR": cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir()), "TMPDIR": dir} {
		if err := os.Setenv(name, value); err != nil {
			return remove, err
		}
	}
	return remove, os.Chmod(dir, 0o1777)
}
