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

// demoPace is the pace for a service that devEnviron has configured.
func demoPace() pace {
	scale := demoScale
	p := paceFor(&scale)
	p.deliveryTries, p.patience = 1+demoWebhookRetries, 15*demoWebhookTimeout
	return p
}

// demo is a tour of a service that it starts and stops itself.
type demo struct {
	binary  string
	dataDir string
	environ []string
	kinds   []kind
	pace    pace
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
		binary: path, dataDir: dataDir, environ: os.Environ(),
		kinds: catalogue(), pace: demoPace(), stdout: stdout, stderr: stderr,
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
	transport := newTransport()
	defer transport.CloseIdleConnections()
	c, err := newClient(s.url, "", transport)
	if err != nil {
		return unusable(d.stderr, err)
	}
	r, err := listenReceiver("127.0.0.1:0", "")
	if err != nil {
		return unusable(d.stderr, err)
	}
	defer r.close()
	// Connections that wait for nothing must not hold up the service's end.
	restart := func(ctx context.Context, until time.Time) (outageTimes, error) {
		transport.CloseIdleConnections()
		return s.restart(ctx, until)
	}
	fmt.Fprintf(d.stderr, "Ready at %s after %s\n", s.url, show(time.Since(began)))
	scale := demoScale
	t := &tour{
		client: c, receiver: r, kinds: d.kinds, pace: d.pace, scale: &scale, outage: restart,
		timeout: demoTimeout - time.Since(began), stdout: d.stdout, stderr: d.stderr,
	}
	return t.run(ctx)
}

// stopped tells an interruption from a service that cannot be started.
func (d *demo) stopped(ctx context.Context, err error) int {
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	return unusable(d.stderr, err)
}
