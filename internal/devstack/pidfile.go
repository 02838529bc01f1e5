package devstack

import (
	"bufio"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// orphan trusts a pid file only if that process is a Postgres on this folder:
// pids are used again.
func (c *cluster) orphan(ctx context.Context) (int, bool) {
	pid := c.readPIDFile().pid
	if pid == 0 {
		return 0, false
	}
	args := commandLine(ctx, pid)
	if len(args) == 0 || filepath.Base(args[0]) != "postgres" {
		return 0, false
	}
	line := strings.Join(args, " ") + " "
	return pid, strings.Contains(line, " -D "+c.dataDir()+" ")
}

// dropForeignPIDFile removes a pid file whose pid now belongs to another
// program, as happens when a container starts again: Postgres would take that
// program for a running server. It deals with all other leftovers itself.
func (c *cluster) dropForeignPIDFile() error {
	pid := c.readPIDFile().pid
	if pid == 0 || syscall.Kill(pid, 0) != nil {
		return nil
	}
	return os.Remove(c.pidFile())
}

func (c *cluster) pidFile() string { return filepath.Join(c.dataDir(), "postmaster.pid") }

// pidFile is what is used of postmaster.pid: its first and its eighth line.
type pidFile struct {
	pid    int
	status string
}

// readPIDFile returns zero values for what is missing: the file is absent when
// no server runs, and short while one starts.
func (c *cluster) readPIDFile() pidFile {
	var result pidFile
	f, err := os.Open(c.pidFile())
	if err != nil {
		return result
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		switch n {
		case 1:
			pid, err := strconv.Atoi(text)
			if err != nil || pid <= 0 {
				return result
			}
			result.pid = pid
		case 8:
			result.status = text
		}
	}
	return result
}
