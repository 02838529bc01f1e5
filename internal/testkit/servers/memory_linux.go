package main

import (
	"cmp"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// memoryNeeded is several times what all tests have there at once.
const memoryNeeded = 6 << 30

// inMemory makes a folder in memory the one for temporary files, for this process and the command, unless there is no room for them
// or programs cannot run there. Go's own, which are larger, stay where they are. Servers and browsers make thousands of files, each of
// which costs a file system much processor time. remove removes the folder.
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
