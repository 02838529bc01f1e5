package commands

import (
	"context"
	"fmt"
	"os"
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

All files are in a temporary folder, which is removed at the end. If something is
wrong, the end of the service's log is shown.`

const (
	demoScale   = 0.02
	demoTimeout = 80 * time.Second

	demoWebhookTimeout = 2 * time.Second // of one try
	demoWebhookRetries = 3
)

// demo is a tour of a service that it starts and stops itself.
type demo struct {
	binary  string
	environ []string
	kinds   []string // nil: all
	Program
}

func (p Program) demoCommand() *cobra.Command {
	d := &demo{environ: os.Environ(), Program: p}
	c := &cobra.Command{
		Use: "demo", Short: "Start a service of its own, tour it, stop it", Long: demoHelp,
		Args: command.Exactly(0),
		Example: `  forgerun demo
  forgerun demo --forgerun ./bin/forgerun`,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if d.binary, err = trial.FindBinary(d.binary); err != nil {
				return command.Usagef("%w", err)
			}
			return command.Code(d.run(c.Context()))
		},
	}
	c.Flags().StringVar(&d.binary, "forgerun", "", "`path` of the forgerun binary (default: this one)")
	return c
}

// run plays the demo, as a client that registers itself, and gives the exit code.
func (d *demo) run(ctx context.Context) int {
	s, err := d.service()
	if err != nil {
		return d.Unusable(err)
	}
	return s.play(ctx, d.Program, exitDifferent, func() int {
		code := d.playTour(ctx, d.options(s))
		if code == exitDifferent || code == exitUnusable {
			s.showLog(d.Stderr)
		}
		return code
	})
}

// service is one whose failing deliveries come to their end within seconds.
func (d *demo) service() (*service, error) {
	return newService(d.binary, d.environ, demoScale,
		// At a small time scale the catalogue leaves RUNS_LONG a few hundred
		// milliseconds below the limit, which a loaded machine may use up.
		"FORGERUN_MAX_RUNTIME=150s",
		"FORGERUN_RETRY_BACKOFF_BASE=200ms", "FORGERUN_RETRY_BACKOFF_MAX=1s",
		fmt.Sprintf("FORGERUN_WEBHOOK_TIMEOUT=%s", demoWebhookTimeout), fmt.Sprintf("FORGERUN_WEBHOOK_MAX_RETRIES=%d", demoWebhookRetries),
		"FORGERUN_WEBHOOK_BACKOFF_BASE=200ms", "FORGERUN_WEBHOOK_BACKOFF_MAX=1s",
	)
}

// options are those of a tour of the service.
func (d *demo) options(s *service) tour.Options {
	scale := demoScale
	return tour.Options{
		Options: trial.Options{
			URL: s.url, TimeScale: &scale, DeliveryTries: 1 + demoWebhookRetries, ReceiverAddr: anyPort, Stdout: d.Stdout, Stderr: d.Stderr,
		},
		Kinds: d.kinds, Timeout: demoTimeout, Patience: 15 * demoWebhookTimeout, Outage: s.restart,
	}
}
