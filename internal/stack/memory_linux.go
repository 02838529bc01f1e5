package stack

import (
	"os"
	"syscall"
)

// MemoryDir returns a folder whose files are in memory and that has room for so many bytes, or else os.TempDir.
func MemoryDir(room uint64) string {
	const dir = "/dev/shm"
	var of syscall.Statfs_t
	if syscall.Statfs(dir, &of) == nil && of.Bavail*uint64(of.Bsize) >= room { //nolint:gosec // a size
		return dir
	}
	return os.TempDir()
}
