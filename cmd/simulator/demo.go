package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/tour"
	"github.com/forgerun/forgerun/internal/simulator/trial"
)

const demoHelp = `Starts a whole ForgeRun of its own ("forgerun dev" as a child process, on free
loopback ports, at a fiftieth of the catalogue's durations), tours all 31 work
kinds, restarts the service across the due time of SCHEDULED_LATE_RECOVERY,
prints the table and stops everything. Webhooks are received by the demo itself
on loopback. FORGERUN_ variables are not passed on.

All files are in DIR/demo, which each demo empties first: the databases, and
forgerun.log with the service's log. Nothing else is touched.`

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

func demoCommand(getenv func(string) string, stdout, stderr io.Writer) *cobra.Command {
	d := &demo{environ: os.Environ(), stdout: stdout, stderr: stderr}
	c := &cobra.Command{
		Use: "demo", Short: "Start a service of its own, tour it, stop it", Long: demoHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return command.Usagef("unexpected argument %q (simulator demo --help)", args[0])
			}
			return nil
		},
		Example: `  simulator demo
  simulator demo --data-dir /tmp/forgerun --forgerun ./bin/forgerun`,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if d.binary, err = trial.FindBinary(d.binary); err != nil {
				return command.Usagef("%w", err)
			}
			return command.Code(d.run(c.Context()))
		},
	}
	c.Flags().StringVar(&d.dataDir, "data-dir", cmp.Or(getenv("FORGERUN_DATA_DIR"), ".forgerun"),
		"data `folder`; the demo uses its subfolder \"demo\"")
	c.Flags().StringVar(&d.binary, "forgerun", "", "`path` of the forgerun binary (default: next to this one)")
	return c
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
		environ: devEnviron(d.environ, f.path, demoScale), httpAddr: anyPort, adminAddr: anyPort, stopPatience: 30 * time.Second,
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
		if ctx.Err() != nil {
			return exitInterrupted
		}
		return unusable(d.stderr, err)
	}
	fmt.Fprintf(d.stderr, "Ready at %s after %s\n", s.url, time.Since(began).Round(time.Millisecond))
	scale := demoScale
	return playTour(ctx, tour.Options{
		URL: s.url, Kinds: d.kinds, TimeScale: &scale, DeliveryTries: 1 + demoWebhookRetries, Patience: 15 * demoWebhookTimeout,
		Timeout: demoTimeout - time.Since(began), Outage: s.restart, Listen: listenAt("127.0.0.1:0", ""), Progress: d.stderr,
	}, d.stdout, d.stderr)
}
