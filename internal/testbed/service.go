package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	readyFile     = "dev.json" // forgerun dev writes this file when it is ready, and removes it at the end
	startPatience = 60 * time.Second
	stopPatience  = 60 * time.Second
	anyPort       = "127.0.0.1:0"
	logTail       = 20
)

// service is a `forgerun dev` child process. It has a fixed address and a temporary data folder. It is not safe for concurrent use.
type service struct {
	command  stack.Command
	dir, url string
	child    *stack.Process // nil: not running
}

// newService returns a service that is not started yet. It drops the caller's FORGERUN_ variables, so the service cannot use another
// service's database or Redis.
func newService(binary string, base []string, scale float64, settings ...string) (*service, error) {
	address, err := stack.FreeAddress()
	if err != nil {
		return nil, err
	}
	dir, err := stack.MkdirTemp("", "forgerun-simulator-")
	if err != nil {
		return nil, err
	}
	environ := slices.DeleteFunc(slices.Clone(base), func(entry string) bool { return strings.HasPrefix(entry, "FORGERUN_") })
	environ = append(environ, "FORGERUN_DATA_DIR="+dir, "FORGERUN_HTTP_ADDR="+address, "FORGERUN_ADMIN_ADDR="+anyPort,
		fmt.Sprintf("FORGERUN_TIME_SCALE=%g", scale), "FORGERUN_LOG_FORMAT=json", "FORGERUN_SHUTDOWN_GRACE=5s",
		"FORGERUN_WEBHOOK_ALLOW_PRIVATE=true")
	return &service{dir: dir, url: "http://" + address, command: stack.Command{
		Path: binary, Args: []string{"dev"}, Env: append(environ, settings...), Log: filepath.Join(dir, "forgerun.log"),
		DeathSignal: syscall.SIGTERM,
	}}, nil
}

func (s *service) checkSettings(ctx context.Context, settings []string) error {
	if len(settings) == 0 {
		return nil
	}
	c := exec.CommandContext(ctx, s.command.Path, "config", "dev", "--all")
	c.Env = s.command.Env
	var stderr strings.Builder
	c.Stderr = &stderr
	known, err := c.Output()
	if err != nil {
		return errors.New(cmp.Or(strings.TrimSpace(stderr.String()), err.Error()))
	}
	for _, setting := range settings {
		name, _, _ := strings.Cut(setting, "=")
		if !strings.Contains(string(known), "  "+name+" ") {
			return fmt.Errorf("unknown variable %s; 'forgerun config dev --all' lists all variables", name)
		}
	}
	return nil
}

// play starts the service and calls `do`. Then it stops the service and removes the service's folder, even after an error. If the service
// does not end cleanly, the exit code is at least `unclean`.
func (s *service) play(ctx context.Context, p command.Program, unclean int, do func() int) int {
	defer func() { _ = os.RemoveAll(s.dir) }()
	began, code := time.Now(), exitInterrupted
	fmt.Fprintln(p.Stderr, "Starting a service")
	if err := s.start(ctx); err == nil {
		fmt.Fprintf(p.Stderr, "Ready at %s after %s\n", s.url, time.Since(began).Round(time.Millisecond))
		code = do()
	} else if ctx.Err() == nil {
		code = p.Unusable(err)
		s.showLog(p.Stderr)
	}
	if err := s.stop(); err != nil {
		fmt.Fprintf(p.Stderr, "forgerun: %v\n", err)
		s.showLog(p.Stderr)
		code = max(code, unclean)
	}
	return code
}

func (s *service) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("forgerun dev was not ready within %s", startPatience))
	defer cancel()
	if s.child, err = stack.StartProcess(s.command); err != nil {
		return err
	}
	err = s.child.Await(ctx, func(context.Context) bool {
		_, err := os.Stat(filepath.Join(s.dir, readyFile))
		return err == nil
	})
	if errors.Is(err, stack.ErrExited) {
		return fmt.Errorf("forgerun dev %w", err)
	}
	return err
}

func (s *service) stop() error {
	err := s.child.Stop(stopPatience)
	s.child = nil
	if err != nil {
		return fmt.Errorf("forgerun dev: %w", err)
	}
	return nil
}

func (s *service) showLog(w io.Writer) {
	if b, err := os.ReadFile(s.command.Log); err == nil {
		lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
		fmt.Fprintf(w, "\nThe last lines of its log:\n%s\n", strings.Join(lines[max(0, len(lines)-logTail):], "\n"))
	}
}
