package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// profiles are the named sets of faults.
var profiles = []string{
	"default", "flaky-network", "overloaded", "maintenance-window", "slow-everything", "failover", "duplicate-deliveries",
	"odd-retry-after", "new-version", "credentials", "eventual", "stale-connections", "moved", "outage",
}

var (
	removedView = output.NewView("REMOVED ROWS:rows")
	faultView   = output.NewView("MATCH:match, EFFECT:effect, SEEN:seen, APPLIED:applied, RULE:rule_id:wide")
	sessionView = output.NewView("SESSION:session_id, LABEL:label, FAULTS:profile, SEED:seed, RECORDS:exchanges, AGE:created_at:age, " +
		"ENDED:ended_at")
	verdictView = output.NewView("SESSION:session_id, VERDICT:verdict:state, OK:counts.ok, WARN:counts.warn, FAIL:counts.fail, " +
		"NOT TESTED:counts.not_tested, WHY:why")
	clockView = output.NewView("NOW:now, OFFSET:offset, RATE:rate, FROZEN:frozen")
)

func (s *Shell) testbed() *cobra.Command {
	set := s.cmd("set PROFILE|FILE", "Replace the fault rules with those of a profile or a JSON file", setFaults)
	shown := s.cmd("show", "List the fault rules and how often each was applied", using(func(c *call, api *client.Client) error {
		return c.faults(api.Faults(c))
	}))
	start := s.cmd("start [FAULTS]", "Start a session, with or without a fault profile", startSession)
	set.ValidArgs, start.ValidArgs, shown.Aliases = profiles, profiles, []string{"list"}
	c := s.group("testbed", "Inject faults into your client's traffic, judge it, and move the clock",
		s.group("faults", "Manage faults in the client's requests, streams and deliveries", set, shown,
			s.cmd("clear", "Remove all fault rules", using(func(c *call, api *client.Client) error {
				_, err := api.SetFaults(c, client.FaultRules{})
				return err
			}))),
		s.group("sessions session", "Record and judge the client's requests", start,
			s.cmd("end SESSION", "End a session and remove the faults of its profile", byID(sessionView, (*client.Client).EndSession)),
			s.cmd("verdict SESSION", "Show the verdict of a session; -o json includes the evidence", byID(verdictView, (*client.Client).Verdict)),
			s.cmd("journal SESSION", "Print the judged requests, each with the rules of the verdict that it broke", using(journal)),
			s.cmd("list", "List the sessions, newest first", list(sessionView, "/v1/testbed/sessions", 0))),
		s.clock(),
		s.cmd("reset", "Delete all jobs of the client and their data", using(func(c *call, api *client.Client) error {
			removed, err := api.Reset(c)
			if err != nil {
				return err
			}
			rows := 0
			for _, n := range removed {
				rows += n
			}
			return c.One(removedView, map[string]any{"removed": removed, "rows": rows})
		})))
	return s.forClients(c)
}

func (c *call) faults(rules []client.Fault, err error) error {
	if err != nil {
		return err
	}
	return c.List(faultView, rules)
}

func setFaults(f *pflag.FlagSet) run {
	var wanted client.FaultRules
	f.Int64Var(&wanted.Seed, "seed", 1, "`number` that seeds the choice of faults")
	return using(func(c *call, api *client.Client) error {
		if _, err := os.Stat(c.args[0]); c.args[0] != "-" && err != nil {
			wanted.Profile = c.args[0]
		} else if err := c.readJSON(c.args[0], &wanted.Rules); err != nil {
			return err
		}
		return c.faults(api.SetFaults(c, wanted))
	})(f)
}

func startSession(f *pflag.FlagSet) run {
	var wanted client.SessionRequest
	f.StringVar(&wanted.Label, "label", "", "judge requests with this `label` in their ForgeRun-Session header; default: requests without it")
	f.Int64Var(&wanted.Seed, "seed", 1, "`number` that seeds the choice of faults")
	f.StringSliceVar(&wanted.Rules, "rules", nil, "`ids` of the rules to judge, separated by commas; default: all")
	return using(func(c *call, api *client.Client) error {
		wanted.Profile = strings.Join(c.args, "")
		return c.shows(sessionView)(api.StartSession(c, wanted))
	})(f)
}

func journal(c *call, api *client.Client) error {
	for e, err := range api.Journal(c, c.args[0]) {
		if err != nil {
			return err
		}
		err := c.Each(e, func(any) string {
			line := fmt.Sprintf("%6d  %s  %s: %s", e.Number, e.At.UTC().Format("15:04:05.000"), e.Request, e.Answer)
			if e.Fault != "" {
				line += "  fault " + e.Fault
			}
			line = term.Line(line)
			if len(e.Breaks) > 0 {
				line += "  " + c.Style.Paint(term.Bad, "breaks "+term.Line(strings.Join(e.Breaks, ", ")))
			}
			return line
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Shell) clock() *cobra.Command {
	move := func(use, short string, do func(c *call, api *client.Client) (*client.Clock, error)) *cobra.Command {
		return s.cmd(use, short, using(func(c *call, api *client.Client) error { return c.shows(clockView)(do(c, api)) }))
	}
	return s.group("clock", "Read and move the clock of the whole service",
		move("show", "Read the clock", func(c *call, api *client.Client) (*client.Clock, error) { return api.Clock(c) }),
		move("advance DURATION", "Advance the clock, such as by 25h, and wait until all due jobs are QUEUED",
			func(c *call, api *client.Client) (*client.Clock, error) {
				by, err := time.ParseDuration(c.args[0])
				if err != nil {
					return nil, command.Usagef("%q is not a duration such as 25h or 1m30s", c.args[0])
				}
				return api.AdvanceClock(c, by)
			}),
		move("set TIME", "Advance the clock to a time, such as 2030-01-31T12:00:00Z",
			func(c *call, api *client.Client) (*client.Clock, error) {
				to, err := command.ParseTime(c.args[0])
				if err != nil {
					return nil, command.Usagef("%q is not a time such as 2030-01-31T12:00:00Z", c.args[0])
				}
				return api.SetClock(c, to)
			}),
		move("freeze", "Stop the clock", func(c *call, api *client.Client) (*client.Clock, error) { return api.FreezeClock(c) }),
		move("thaw", "Let the clock run again", func(c *call, api *client.Client) (*client.Clock, error) { return api.ThawClock(c) }))
}
