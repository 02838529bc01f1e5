package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/tour"
)

const (
	readyFile     = "dev.json" // written by forgerun dev once it is ready, removed at its end
	logFile       = "forgerun.log"
	startPatience = 60 * time.Second
)

// service is a ForgeRun of our own: `forgerun dev` as a child process. It is
// used by one goroutine.
type service struct {
	binary  string
	dir     string
	environ []string // of the child; the addresses are added
	lock    *os.File // inherited by the child, so that the folder stays locked while it lives
	// Once known, the addresses are kept: the URL must survive a restart.
	httpAddr, adminAddr string
	url                 string
	child               *child
	// stopPatience is how long a child may take to end before it is killed.
	stopPatience time.Duration
}

// child is one running process.
type child struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when the process has been waited for
	err   error         // how it ended; read after ended
}

// devInfo is the part of dev.json that matters here.
type devInfo struct {
	URL      string `json:"url"`
	AdminURL string `json:"admin_url"`
	PID      int    `json:"pid"`
}

// devEnviron gives the environment of a demo's service: the caller's without
// any FORGERUN_ variable, so that a demo is the same everywhere and never
// touches stores that were configured for something else.
func devEnviron(base []string, dir string, scale float64) []string {
	var environ []string
	for _, entry := range base {
		if !strings.HasPrefix(entry, "FORGERUN_") {
			environ = append(environ, entry)
		}
	}
	return append(environ,
		"FORGERUN_DATA_DIR="+dir,
		fmt.Sprintf("FORGERUN_TIME_SCALE=%g", scale),
		// At a small time scale the catalogue leaves RUNS_LONG a few hundred
		// milliseconds below the limit, which a loaded machine may use up.
		"FORGERUN_MAX_RUNTIME=150s",
		"FORGERUN_LOG_FORMAT=json",
		"FORGERUN_RETRY_BACKOFF_BASE=200ms", "FORGERUN_RETRY_BACKOFF_MAX=1s",
		"FORGERUN_SHUTDOWN_GRACE=5s",
		// Deliveries that fail come to their end within seconds.
		fmt.Sprintf("FORGERUN_WEBHOOK_TIMEOUT=%s", demoWebhookTimeout),
		fmt.Sprintf("FORGERUN_WEBHOOK_MAX_RETRIES=%d", demoWebhookRetries),
		"FORGERUN_WEBHOOK_BACKOFF_BASE=200ms", "FORGERUN_WEBHOOK_BACKOFF_MAX=1s",
		"FORGERUN_WEBHOOK_ALLOW_PRIVATE=true",
	)
}

// start starts the child and returns when it is ready.
func (s *service) start(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(s.dir, logFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(s.binary, "dev")
	cmd.Env = slices.Concat(s.environ, []string{
		"FORGERUN_HTTP_ADDR=" + anyPort(s.httpAddr), "FORGERUN_ADMIN_ADDR=" + anyPort(s.adminAddr),
	})
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{s.lock}
	// A group of its own: Ctrl-C in the terminal reaches this process alone,
	// which then stops the child in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("cannot start %s: %w", s.binary, err)
	}
	c := &child{cmd: cmd, ended: make(chan struct{})}
	s.child = c
	go func() {
		c.err = cmd.Wait()
		close(c.ended)
	}()
	info, err := s.awaitReady(ctx)
	if err != nil {
		return err
	}
	return s.remember(info)
}

// awaitReady polls for the ready file of this very child.
func (s *service) awaitReady(ctx context.Context) (devInfo, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("forgerun dev was not ready within %s", startPatience))
	defer cancel()
	for {
		if info, err := readReady(s.dir); err == nil && info.PID == s.child.cmd.Process.Pid {
			return info, nil
		}
		select {
		case <-s.child.ended:
			return devInfo{}, fmt.Errorf("forgerun dev ended before it was ready: %w", s.child.failure())
		case <-ctx.Done():
			return devInfo{}, context.Cause(ctx)
		case <-time.After(25 * time.Millisecond):
		}
	}
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

// stop asks the child to end and waits until it has; it kills one that does
// not. Without a running child it does nothing. Any end but a clean one is an
// error.
func (s *service) stop() error {
	c := s.child
	if c == nil {
		return nil
	}
	s.child = nil
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-c.ended:
		if c.err != nil {
			return fmt.Errorf("forgerun dev did not end cleanly: %w", c.err)
		}
		return nil
	case <-time.After(s.stopPatience):
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		<-c.ended
		return fmt.Errorf("forgerun dev had not ended %s after SIGTERM and was killed", s.stopPatience)
	}
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

// failure returns how a child ended that should still be running.
func (c *child) failure() error {
	if c.err != nil {
		return c.err
	}
	return errors.New("exit status 0")
}

// lastLines gives the end of the child's log.
func (s *service) lastLines(n int) string {
	b, err := os.ReadFile(filepath.Join(s.dir, logFile))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func anyPort(addr string) string {
	if addr == "" {
		return "127.0.0.1:0"
	}
	return addr
}
