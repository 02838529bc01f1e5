package commands

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/simulator/tour"
	"github.com/forgerun/forgerun/internal/simulator/trial"
)

const tourHelp = `Submits one job of each of the 31 work kinds to a running service, does the
client's part (cancels, retries, duplicates, schedules), waits for all of them,
and compares every job, report and event with the catalogue. Without --key it
registers a client of its own, which the service must allow.

At time scale 1 the longest kinds take two minutes; with few workers the tour
takes as long as all kinds together. The clocks of both machines should agree
to within a second. What the tour leaves unfinished it cancels.

For the WEBHOOK_ kinds the tour is a webhook receiver itself, which the service
must be able to call: on loopback that takes FORGERUN_WEBHOOK_ALLOW_PRIVATE at
the service, elsewhere --receiver-addr and --receiver-url. How long a service
goes on retrying is its own affair: with its defaults a quarter of an hour. The
tour waits --webhook-patience for the end of a delivery and then says how far it
came.`

func (p Program) tourCommand() *cobra.Command {
	o := tour.Options{Options: trial.Options{Stdout: p.Stdout, Stderr: p.Stderr}}
	c := &cobra.Command{
		Use: "tour --url URL", Short: "Judge a running service, one job of each work kind", Long: tourHelp, Args: command.Exactly(0),
		Example: `  forgerun simulate tour --url http://127.0.0.1:8080
  forgerun simulate tour --url http://127.0.0.1:8080 --key frk_... --timeout 30m
  forgerun simulate tour --url http://127.0.0.1:8080 --time-scale-hint 0.02
  forgerun simulate tour --url https://forgerun.example.com --key frk_... \
    --receiver-addr :9000 --receiver-url http://192.0.2.7:9000`,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Timeout <= 0 || o.Patience <= 0 {
				return command.Usagef("--timeout and --webhook-patience must be above 0")
			}
			return command.Code(p.playTour(c.Context(), o))
		},
	}
	f := c.Flags()
	serviceFlags(f, &o.Options)
	f.DurationVar(&o.Timeout, "timeout", 15*time.Minute, "give up after this `time`")
	f.DurationVar(&o.Patience, "webhook-patience", tour.DefaultPatience, "wait this `time` for the end of each delivery")
	return c
}

// serviceFlags are those about a running service, and how it reaches the receiver.
func serviceFlags(f *pflag.FlagSet, o *trial.Options) {
	f.StringVar(&o.URL, "url", "", "base `URL` of a running service")
	f.StringVar(&o.Key, "key", "", "API `key` for that; without it, clients are registered")
	f.StringVar(&o.ReceiverAddr, "receiver-addr", "127.0.0.1:0", "`address` on which to receive webhooks")
	f.StringVar(&o.ReceiverURL, "receiver-url", "", "base `URL` at which the service reaches that (default: the address itself)")
	f.Func("time-scale-hint", "FORGERUN_TIME_SCALE of the service at --url, a `number`, if known", func(text string) error {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || !(n >= 0 && n <= 1000) {
			return errors.New("must be a number from 0 to 1000")
		}
		o.TimeScale = &n
		return nil
	})
}

// playTour plays a tour, prints the table and gives the exit code.
func (p Program) playTour(ctx context.Context, o tour.Options) int {
	result, err := tour.Run(ctx, o)
	switch {
	case ctx.Err() != nil:
		fmt.Fprintln(o.Stderr, "forgerun: interrupted")
		return exitInterrupted
	case err != nil:
		return p.Unusable(err)
	}
	result.Write(o.Stdout)
	if !result.OK() {
		return exitDifferent
	}
	return exitOK
}
