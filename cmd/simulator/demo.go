package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/tour"
	"github.com/forgerun/forgerun/internal/simulator/trial"
)

const demoHelp = `Usage: simulator demo [flags]

Starts a whole ForgeRun of its own ("forgerun dev" as a child process, on free
loopback ports, at a fiftieth of the catalogue's durations), tours all 31 work
kinds, restarts the service across the due time of SCHEDULED_LATE_RECOVERY,
prints the table and stops everything. Webhooks are received by the demo itself
on loopback. FORGERUN_ variables are not passed on.

All files are in DIR/demo, which each demo empties first: the databases, and
forgerun.log with the service's log. Nothing else is touched.

Examples:
  simulator demo
  simulator demo --data-dir /tmp/forgerun --forgerun ./bin/forgerun
`

const (
	demoScale   = 0.02
	demoTimeout = 80 * time.Second
	logTail     = 20

	demoWebhookTimeout = 2 * time.Second // of one try
	demoWebhookRetries = 3
)

// demo is a tour of a service that it starts and stops itself.
type demo struct {
	binary  string
	dataDir string
	environ []string
	kinds   []string // nil: all
	stdout  io.Writer
	stderr  io.Writer
}

func runDemo(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	dataDir := getenv("FORGERUN_DATA_DIR")
	if dataDir == "" {
		dataDir = ".forgerun"
	}
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.StringVar(&dataDir, "data-dir", dataDir, "data `folder`; the demo uses its subfolder \"demo\"")
	binary := fs.String("forgerun", "", "`path` of the forgerun binary (default: next to this one)")
	if code, done := parse(fs, demoHelp, args, stdout, stderr); done {
		return code
	}
	path, err := trial.FindBinary(*binary)
	if err != nil {
		return unusable(stderr, err)
	}
	d := &demo{
		binary: path, dataDir: dataDir, environ: os.Environ(), stdout: stdout, stderr: stderr,
	}
	return d.run(ctx)
}

// run plays the demo and gives the exit code. However it ends, the child is
// stopped.
func (d *demo) run(ctx context.Context) int {
	f, err := claimFolder(d.dataDir)
	if err != nil {
		return unusable(d.stderr, err)
	}
	defer f.release()
	s := &service{
		binary: d.binary, dir: f.path, lock: f.lock,
		environ: devEnviron(d.environ, f.path, demoScale), stopPatience: 30 * time.Second,
	}
	code := d.tour(ctx, s)
	if err := s.stop(); err != nil {
		fmt.Fprintf(d.stderr, "simulator: %v\n", err)
		code = max(code, exitDifferent)
	}
	if code == exitDifferent || code == exitUnusable {
		fmt.Fprintf(d.stderr, "\nThe last lines of %s:\n%s\n", filepath.Join(f.path, logFile), s.lastLines(logTail))
	}
	return code
}

// tour starts the service and tours it as a stranger would: it registers.
func (d *demo) tour(ctx context.Context, s *service) int {
	began := time.Now()
	fmt.Fprintf(d.stderr, "Starting a service of our own in %s\n", s.dir)
	if err := s.start(ctx); err != nil {
		return d.stopped(ctx, err)
	}
	fmt.Fprintf(d.stderr, "Ready at %s after %s\n", s.url, time.Since(began).Round(time.Millisecond))
	scale := demoScale
	return playTour(ctx, tour.Options{
		URL: s.url, Kinds: d.kinds, TimeScale: &scale, DeliveryTries: 1 + demoWebhookRetries, Patience: 15 * demoWebhookTimeout,
		Timeout: demoTimeout - time.Since(began), Outage: s.restart, Listen: listenAt("127.0.0.1:0", ""), Progress: d.stderr,
	}, d.stdout, d.stderr)
}

// stopped distinguishes an interruption from a service that cannot be started.
func (d *demo) stopped(ctx context.Context, err error) int {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return unusable(d.stderr, err)
}
