// Package testbed has the commands by which clients of a test bed disturb and judge their own traffic, and move its clock.
package testbed

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// profiles are the sets of faults that have names.
var profiles = []string{
	"default", "flaky-network", "overloaded", "maintenance-window", "slow-everything", "failover", "duplicate-deliveries",
	"odd-retry-after", "new-version", "credentials", "eventual", "stale-connections", "moved", "outage",
}

// Command is "testbed" with those below it.
func Command(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{
		Use: "testbed", Short: "Disturb your client's traffic, have it judged, and move the clock, on a test bed",
		Long: "Commands for a service with FORGERUN_TESTBED=true, such as 'forgerun dev'. All but the clock is about the client whose key\n" +
			"is used. To judge a program in one line there is 'forgerun verdict'.",
	}))
	c.AddCommand(faultsCommand(s), sessionsCommand(s), clockCommand(s), &cobra.Command{
		Use: "reset", Short: "Remove all jobs of the client with all that belongs to them", Args: command.Exactly(0),
		RunE: s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, _ []string) error {
			removed, err := api.Reset(ctx)
			if err != nil {
				return err
			}
			return p.One(removedView, map[string]any{"removed": removed})
		}),
	})
	return c
}

var removedView = output.View{ID: "removed", Columns: []output.Column{{Head: "REMOVED", Show: func(item any) string {
	rows, _ := output.At(item, "removed").(map[string]any)
	sum := 0.0
	for _, n := range rows {
		count, _ := strconv.ParseFloat(output.Text(n), 64)
		sum += count
	}
	return fmt.Sprintf("%.0f rows", sum)
}}}}

var faultView = output.View{ID: "rule_id", Columns: []output.Column{
	{Head: "MATCH", Path: "match"},
	{Head: "EFFECT", Path: "effect"},
	{Head: "SEEN", Path: "seen"},
	{Head: "APPLIED", Path: "applied"},
	{Head: "RULE", Path: "rule_id", Wide: true},
}}

func faultsCommand(s *session.Session) *cobra.Command {
	c := command.Group(&cobra.Command{Use: "faults", Short: "What happens to the client's requests, streams and deliveries"})
	show := func(p *output.Printer, rules []client.Fault, err error) error {
		if err != nil {
			return err
		}
		return p.List(faultView, output.Items(rules))
	}
	wanted := client.FaultRules{}
	set := &cobra.Command{
		Use: "set PROFILE|FILE", Short: "Replace the rules by those of a profile, or of a JSON file", Args: command.Exactly(1),
		Long:      "Replaces the client's rules. FILE has an array of rules, as docs/reference/testbed.md has them; - is standard input.",
		ValidArgs: profiles,
		RunE: s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			if _, err := os.Stat(args[0]); args[0] != "-" && err != nil {
				wanted.Profile = args[0]
			} else if err := s.ReadJSON(args[0], &wanted.Rules); err != nil {
				return err
			}
			rules, err := api.SetFaults(ctx, wanted)
			return show(p, rules, err)
		}),
	}
	set.Flags().Int64Var(&wanted.Seed, "seed", 1, "`number` that they are drawn by")
	c.AddCommand(set,
		&cobra.Command{Use: "show", Aliases: []string{"list"}, Short: "List the rules, with how often each has applied", Args: command.Exactly(0),
			RunE: s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, _ []string) error {
				rules, err := api.Faults(ctx)
				return show(p, rules, err)
			})},
		&cobra.Command{Use: "clear", Short: "Remove all rules", Args: command.Exactly(0),
			RunE: s.Public(func(ctx context.Context, api *client.Client, _ *output.Printer, _ []string) error {
				_, err := api.SetFaults(ctx, client.FaultRules{})
				return err
			})})
	return c
}

var sessionView = output.View{ID: "session_id", Columns: []output.Column{
	{Head: "SESSION", Path: "session_id"},
	{Head: "LABEL", Path: "label"},
	{Head: "FAULTS", Path: "profile"},
	{Head: "SEED", Path: "seed"},
	{Head: "RECORDS", Path: "exchanges"},
	{Head: "AGE", Path: "created_at", Age: true},
	{Head: "ENDED", Path: "ended_at"},
}}

var verdictView = output.View{ID: "session_id", Columns: []output.Column{
	{Head: "SESSION", Path: "session_id"},
	{Head: "VERDICT", Path: "verdict", State: true},
	{Head: "OK", Path: "counts.ok"},
	{Head: "WARN", Path: "counts.warn"},
	{Head: "FAIL", Path: "counts.fail"},
	{Head: "NOT TESTED", Path: "counts.not_tested"},
	{Head: "WHY", Path: "why"},
}}

func sessionsCommand(s *session.Session) *cobra.Command {
	c := command.Group(&cobra.Command{Use: "sessions", Aliases: []string{"session"}, Short: "Record what the client does, and judge it"})
	wanted, limit := client.SessionRequest{}, 0
	start := &cobra.Command{
		Use: "start [FAULTS]", Short: "Begin a session, under a profile of faults or none", Args: command.Between(0, 1), ValidArgs: profiles,
		RunE: s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			if len(args) > 0 {
				wanted.Profile = args[0]
			}
			began, err := api.StartSession(ctx, wanted)
			if err != nil {
				return err
			}
			return p.One(sessionView, began)
		}),
	}
	start.Flags().StringVar(&wanted.Label, "label", "", "`label` that its requests carry as ForgeRun-Session; those without one without it")
	start.Flags().Int64Var(&wanted.Seed, "seed", 1, "`number` that faults are drawn by")
	start.Flags().StringSliceVar(&wanted.Rules, "rules", nil, "`ids` of the rules to judge, separated by commas; all without it")
	with := func(name, short string, run session.Run) *cobra.Command {
		return &cobra.Command{Use: name + " SESSION", Short: short, Args: command.Exactly(1), RunE: run}
	}
	c.AddCommand(start, with("end", "End a session, and the faults of its profile", session.Show(s, sessionView, (*client.Client).EndSession)),
		with("verdict", "Tell what a session has shown; -o json has the evidence", session.Show(s, verdictView, (*client.Client).Verdict)),
		with("journal", "Print the requests that the verdict is about, with the rules that each broke", s.Public(journal)),
		session.Limit(&cobra.Command{
			Use: "list", Aliases: []string{"ls"}, Short: "List the sessions, the latest first", Args: command.Exactly(0),
			RunE: s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, _ []string) error {
				return session.List(p, sessionView, api.Sessions(ctx), limit)
			}),
		}, &limit))
	return c
}

// journal prints each request of a session on a line.
func journal(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
	for e, err := range api.Journal(ctx, args[0]) {
		if err != nil {
			return err
		}
		if err := p.Each(output.View{ID: "number"}, e, func(any) string { return lineOf(p.Style, &e) }); err != nil {
			return err
		}
	}
	return nil
}

func lineOf(style term.Style, e *client.JournalEntry) string {
	line := fmt.Sprintf("%6d  %s  %s: %s", e.Number, e.At.UTC().Format("15:04:05.000"), e.Request, e.Answer)
	if e.Fault != "" {
		line += "  fault " + e.Fault
	}
	line = term.Line(line)
	if len(e.Breaks) > 0 {
		line += "  " + style.Paint(term.Bad, "breaks "+strings.Join(e.Breaks, ", "))
	}
	return line
}

var clockView = output.View{ID: "now", Columns: []output.Column{
	{Head: "NOW", Path: "now"}, {Head: "OFFSET", Path: "offset"}, {Head: "RATE", Path: "rate"}, {Head: "FROZEN", Path: "frozen"},
}}

func clockCommand(s *session.Session) *cobra.Command {
	type change = func(context.Context, *client.Client, []string) (*client.Clock, error)
	move := func(use, short string, args int, do change) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: command.Exactly(args),
			RunE: s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
				shown, err := do(ctx, api, args)
				if err != nil {
					return err
				}
				return p.One(clockView, shown)
			})}
	}
	c := command.Group(&cobra.Command{Use: "clock", Short: "Read and move the clock of the whole service"})
	c.AddCommand(
		move("show", "Read the clock", 0, plainly((*client.Client).Clock)),
		move("advance DURATION", "Move it on, such as by 25h; answers when all that became due is QUEUED", 1,
			func(ctx context.Context, api *client.Client, args []string) (*client.Clock, error) {
				by, err := time.ParseDuration(args[0])
				if err != nil {
					return nil, command.Usagef("%q is no duration such as 25h or 1m30s", args[0])
				}
				return api.AdvanceClock(ctx, by)
			}),
		move("set TIME", "Move it on to a time, such as 2030-01-31T12:00:00Z", 1,
			func(ctx context.Context, api *client.Client, args []string) (*client.Clock, error) {
				to, err := command.ParseTime(args[0])
				if err != nil {
					return nil, command.Usagef("%q is no time such as 2030-01-31T12:00:00Z", args[0])
				}
				return api.SetClock(ctx, to)
			}),
		move("freeze", "Stop it", 0, plainly((*client.Client).FreezeClock)),
		move("thaw", "Let it run on", 0, plainly((*client.Client).ThawClock)))
	return c
}

// plainly makes a change of the clock that takes no argument.
func plainly(call func(*client.Client, context.Context, ...client.Option) (*client.Clock, error)) func(
	context.Context, *client.Client, []string,
) (*client.Clock, error) {
	return func(ctx context.Context, api *client.Client, _ []string) (*client.Clock, error) {
		return call(api, ctx)
	}
}
