//go:build !linux

package stack

import "os"

// MemoryDir returns os.TempDir: only Linux has a folder in memory everywhere.
func MemoryDir(uint64) string { return os.TempDir() }
