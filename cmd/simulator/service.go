package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/tour"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	readyFile     = "dev.json" // written by forgerun dev once it is ready, removed at its end
	logFile       = "forgerun.log"
	startPatience = 60 * time.Second
	anyPort       = "127.0.0.1:0"
	logTail       = 20 // lines of the log
)

// service is a ForgeRun of our own: `forgerun dev` as a child process. It is
// used by one goroutine.
type service struct {
	binary  string
	dir     string
	environ []string // of the child; the addresses are added
	lock    *os.File // inherited by the child, so that the folder stays locked while it lives
	// At first any free port; once known, the addresses survive a restart.
	httpAddr, adminAddr string
	url                 string
	child               *stack.Process // nil: not started, or stopped
	// stopPatience is how long a child may take to end before it is killed.
	stopPatience time.Duration
}

// devInfo is the part of dev.json that matters here.
type devInfo struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url"`
	PID      int    `json:"pid"`
}

// newService gives a service in a folder. Its environment is the caller's without
// FORGERUN_ variables, so that it never touches stores configured for something else.
func newService(binary string, f *folder, base []string, scale float64, settings ...string) *service {
	environ := slices.DeleteFunc(slices.Clone(base), func(entry string) bool { return strings.HasPrefix(entry, "FORGERUN_") })
	environ = append(environ, "FORGERUN_DATA_DIR="+f.path, fmt.Sprintf("FORGERUN_TIME_SCALE=%g", scale), "FORGERUN_LOG_FORMAT=json",
		"FORGERUN_SHUTDOWN_GRACE=5s", "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true")
	return &service{
		binary: binary, dir: f.path, lock: f.lock, environ: append(environ, settings...), httpAddr: anyPort, adminAddr: anyPort,
		stopPatience: 30 * time.Second,
	}
}

// play starts the service, does something with it and stops it, however that ends,
// and gives the exit code: unclean if the service did not end as it should.
func (s *service) play(ctx context.Context, stderr io.Writer, unclean int, do func() int) int {
	began, code := time.Now(), exitInterrupted
	fmt.Fprintf(stderr, "Starting a service of our own in %s\n", s.dir)
	if err := s.start(ctx); err == nil {
		fmt.Fprintf(stderr, "Ready at %s after %s\n", s.url, time.Since(began).Round(time.Millisecond))
		code = do()
	} else if ctx.Err() == nil {
		code = unusable(stderr, err)
	}
	if err := s.stop(); err != nil {
		fmt.Fprintf(stderr, "simulator: %v\n", err)
		code = max(code, unclean)
	}
	return code
}

// start starts the child and returns when its ready file names it.
func (s *service) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("forgerun dev was not ready within %s", startPatience))
	defer cancel()
	p, err := stack.StartProcess(stack.Command{
		Path: s.binary, Args: []string{"dev"},
		Env:   slices.Concat(s.environ, []string{"FORGERUN_HTTP_ADDR=" + s.httpAddr, "FORGERUN_ADMIN_ADDR=" + s.adminAddr}),
		Files: []*os.File{s.lock}, Log: filepath.Join(s.dir, logFile),
	})
	if err != nil {
		return err
	}
	s.child = p
	err = p.Await(ctx, func(context.Context) (bool, error) {
		info, err := readReady(s.dir)
		if err != nil || info.PID != p.PID() {
			return false, nil
		}
		return true, s.remember(info)
	})
	if errors.Is(err, stack.ErrExited) {
		return fmt.Errorf("forgerun dev %w", err)
	}
	return err
}

// readReady reads the ready file of the service in dir.
func readReady(dir string) (info devInfo, err error) {
	b, err := os.ReadFile(filepath.Join(dir, readyFile))
	if err != nil {
		return info, err
	}
	return info, json.Unmarshal(b, &info)
}

// remember keeps the addresses, for the client and for a restart.
func (s *service) remember(info devInfo) error {
	api, err := url.Parse(info.URL)
	if err != nil || api.Host == "" {
		return fmt.Errorf("%s has no usable url: %q", readyFile, info.URL)
	}
	s.url, s.httpAddr = info.URL, api.Host
	if admin, err := url.Parse(info.AdminURL); err == nil {
		s.adminAddr = admin.Host
	}
	return nil
}

// stop asks the child to end, kills it after stopPatience, and waits until it has
// ended. Any end but a clean one is an error; without a child there is nothing to do.
func (s *service) stop() error {
	err := s.child.Stop(s.stopPatience)
	s.child = nil
	if err != nil {
		return fmt.Errorf("forgerun dev: %w", err)
	}
	return nil
}

// restart is the outage of a demo: down now, back when until has passed.
func (s *service) restart(ctx context.Context, until time.Time) (times tour.OutageTimes, err error) {
	if err := s.stop(); err != nil {
		return times, err
	}
	times.Down = time.Now()
	if err := load.Sleep(ctx, time.Until(until)); err != nil {
		return times, err
	}
	times.Restarted = time.Now()
	if err := s.start(ctx); err != nil {
		return times, fmt.Errorf("the service did not come back: %w", err)
	}
	times.Ready = time.Now()
	return times, nil
}

// showLog writes the end of the child's log.
func (s *service) showLog(w io.Writer) {
	path := filepath.Join(s.dir, logFile)
	if b, err := os.ReadFile(path); err == nil {
		lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
		fmt.Fprintf(w, "\nThe last lines of %s:\n%s\n", path, strings.Join(lines[max(0, len(lines)-logTail):], "\n"))
	}
}
