// Command servers starts a Postgres server and runs a command, such as "go test". The tests of all packages share the server; see
// repotest.Shared. When the command ends, the server is removed. If there is enough memory, the temporary files of the command and the
// server are kept in memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/repo/repotest"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: servers COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	err := run(os.Args[1], os.Args[2:]...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1)) // the command has printed the reason
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		os.Exit(1)
	}
}

// run starts the server and runs the command. It passes signals to the command's process group, so that the command ends before the
// server.
func run(name string, args ...string) (err error) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	remove, err := inMemory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	variables, stop, err := repotest.Shared(context.Background())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c := exec.CommandContext(context.Background(), name, args...) //nolint:gosec // the caller chooses the command
	c.Stdout, c.Stderr, c.Env = os.Stdout, os.Stderr, append(os.Environ(), variables...)
	stack.OwnGroup(c)
	if err := c.Start(); err != nil {
		return err
	}
	go func() {
		for s := range signals {
			if s, ok := s.(syscall.Signal); ok {
				_ = stack.SignalGroup(c.Process.Pid, s)
			}
		}
	}()
	return c.Wait()
}
