package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/doctor"
)

// doctorRoles are the roles that can be examined.
var doctorRoles = []string{"api", "worker", "deliverer", "dev"}

func (p *program) doctorCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "doctor [ROLE]", Short: "Check configuration, Postgres and Redis of a role, and say what to do about each finding",
		Long: "Looks at the configuration of a role (dev if one runs in this folder, otherwise api) " +
			"and at its stores, and says what to do about what it finds. It writes nothing " +
			"anywhere.\n\nExit codes: 0 nothing is wrong, 1 something is, 2 the configuration is.",
		ValidArgs: doctorRoles, Args: command.Only(doctorRoles...),
		RunE: func(c *cobra.Command, args []string) error {
			return p.doctor(c.Context(), strings.Join(args, ""), asJSON)
		},
	}
	command.JSON(c.Flags(), &asJSON)
	return c
}

// doctor looks at the configuration of a role and at its stores.
func (p *program) doctor(ctx context.Context, role string, asJSON bool) error {
	if role == "" {
		role = "api"
		dev, _ := LoadConfig("dev", p.getenv)
		if _, err := access.ReadDev(dev.DataDir); err == nil {
			role = "dev" // what somebody has started here is what they ask about
		}
	}
	cfg, bad := LoadConfig(role, p.getenv)
	all := examine(ctx, role, cfg, bad, unknownVariables(p.environ))
	style := term.Of(p.stdout, p.getenv)
	colors := map[doctor.Severity]term.Color{doctor.Healthy: term.Good, doctor.Warning: term.Warn, doctor.Failing: term.Bad}
	paint := func(s doctor.Severity, text string) string { return style.Paint(colors[s], text) }
	if err := all.Write(p.stdout, asJSON, paint); err != nil {
		return fmt.Errorf("forgerun doctor: %w", err)
	}
	switch {
	case bad != nil:
		return command.Code(command.WrongUsage)
	case all.Count(doctor.Failing) > 0:
		return command.Code(command.Failed)
	}
	return nil
}

// examine judges the configuration and inspects the stores. A bad configuration
// does not prevent the inspection of what it names.
func examine(ctx context.Context, role string, cfg Config, bad error, unknown []string) doctor.Findings {
	found := configFindings{}
	found.judgeConfig(role, cfg, bad, unknown)
	found.judgeFiles(role, conn.ForPublic())
	if role == "dev" {
		cfg.addDevStores()
	}
	stores := doctor.Stores{Role: role, DatabaseURL: cfg.DatabaseURL, RedisURL: cfg.RedisURL}
	stores.Inspect(ctx)
	found.JudgeServers(&stores)
	found.judgeMasterKey(role, cfg, stores.State())
	found.JudgeService(&stores)
	return found.Findings
}

// fewConnections is what a usual number of clients may come to.
const fewConnections = 2_000

// judgeFiles says how many connections a process that is started from here
// can have: the limit of open files is inherited.
func (fs *configFindings) judgeFiles(role string, connections int) {
	const what = "file descriptors"
	found := fmt.Sprintf("room for %d connections of clients", connections)
	if connections < fewConnections && (role == "api" || role == "dev") {
		fs.Warn(what, found+": the oldest idle ones are closed for new ones",
			"raise the hard limit of the service (LimitNOFILE= of systemd, ulimits of compose, ulimit -Hn)")
		return
	}
	fs.OK(what, found)
}

// addDevStores fills in the stores that a running dev started itself.
func (c *Config) addDevStores() {
	dev, _ := access.ReadDev(c.DataDir) // nothing if it does not run
	c.DatabaseURL, c.RedisURL = cmp.Or(c.DatabaseURL, dev.DatabaseURL), cmp.Or(c.RedisURL, dev.RedisURL)
}

// sentences splits the error of LoadConfig into what it says of each variable.
func sentences(bad error) []string {
	var lines []string
	for line := range strings.Lines(bad.Error()) {
		if line = strings.TrimSpace(line); line != "" && line != "bad configuration:" {
			lines = append(lines, line)
		}
	}
	return lines
}
