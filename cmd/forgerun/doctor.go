package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/doctor"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/webhook"
)

var doctorRoles = []string{"api", "worker", "deliverer", "dev"}

func (p *program) doctorCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "doctor [ROLE]", Short: "Check a role's configuration, Postgres and Redis, and explain how to fix problems",
		Long: "Checks the configuration, Postgres and Redis of ROLE (default: dev if it runs in this folder, otherwise api), " +
			"and says how to fix each problem. It writes nothing.\n\nExit codes: 0 no problems, 1 problems found, 2 invalid configuration.",
		ValidArgs: doctorRoles, Args: command.Only(doctorRoles...),
		RunE: func(c *cobra.Command, args []string) error {
			return p.doctor(c.Context(), strings.Join(args, ""), asJSON)
		},
	}
	command.JSON(c.Flags(), &asJSON)
	return c
}

func (p *program) doctor(ctx context.Context, role string, asJSON bool) error {
	if role == "" {
		role = "api"
		dev, _ := LoadConfig("dev", p.getenv)
		if _, err := access.ReadDev(dev.DataDir); err == nil {
			role = "dev" // a dev service uses this data folder, so examine that service
		}
	}
	cfg, bad := LoadConfig(role, p.getenv)
	all := examine(ctx, role, cfg, bad, unknownVariables(p.environ))
	colors := map[doctor.Severity]term.Color{doctor.Healthy: term.Good, doctor.Warning: term.Warn, doctor.Failing: term.Bad}
	paint := func(s doctor.Severity, text string) string { return term.Of(p.stdout, p.getenv).Paint(colors[s], text) }
	if err := all.Write(p.stdout, asJSON, paint); err != nil {
		return fmt.Errorf("forgerun doctor: %w", err)
	}
	if bad != nil {
		return command.Code(command.WrongUsage)
	}
	return command.Code(min(all.Count(doctor.Failing), command.Failed))
}

// examine judges the configuration and inspects the stores. A bad configuration does not stop it.
func examine(ctx context.Context, role string, cfg Config, bad error, unknown []string) (found doctor.Findings) {
	judgeConfig(&found, role, cfg, bad, unknown)
	judgeFiles(&found, role, conn.ForPublic())
	if role == "dev" { // a running dev has written the addresses of its stores to a file
		dev, _ := access.ReadDev(cfg.DataDir)
		cfg.DatabaseURL, cfg.RedisURL = cmp.Or(cfg.DatabaseURL, dev.DatabaseURL), cmp.Or(cfg.RedisURL, dev.RedisURL)
	}
	state := found.Inspect(ctx, role, cfg.DatabaseURL, cfg.RedisURL)
	judgeMasterKey(&found, role, cfg, state)
	if state != nil {
		found.JudgeState(state)
	}
	return found
}

// doctor warns if the limit of open files allows fewer client connections than fewConnections.
const fewConnections = 2_000

// judgeFiles checks this process's limit of open files. A service started by the same shell or systemd unit has the same limit.
func judgeFiles(fs *doctor.Findings, role string, connections int) {
	found := fmt.Sprintf("room for %d client connections", connections)
	fs.Judge("file descriptors",
		doctor.Warn(connections < fewConnections && (role == "api" || role == "dev"),
			found+": when all are in use, the oldest idle ones are closed",
			"raise the hard limit of the service (LimitNOFILE= of systemd, ulimits of compose, ulimit -Hn)"),
		doctor.OK(found))
}

// judgeConfig judges whether the role can start, and warns of values that are allowed but probably unintended.
func judgeConfig(fs *doctor.Findings, role string, cfg Config, bad error, unknown []string) {
	if bad == nil {
		fs.Judge("configuration", doctor.OK("valid for "+role))
	} else {
		for line := range strings.Lines(bad.Error()) {
			if line = strings.TrimSpace(line); line != "" && line != "bad configuration:" {
				fs.Judge("configuration", doctor.Fail(true, line,
					role+" cannot start: correct the variable ('forgerun config "+role+"' lists them all)"))
			}
		}
	}
	for _, name := range unknown {
		fs.Judge("configuration", doctor.Warn(true, name+" is not a known variable and is ignored",
			"correct the name ('forgerun config' lists them all), or remove it"))
	}
	if bad != nil {
		return // LoadConfig failed, so cfg is incomplete
	}
	if role == "worker" || role == "dev" { // the lease must last long enough for a second heartbeat after a failed one
		found := fmt.Sprintf("%v, heartbeat every %v, statements up to %v", cfg.LeaseTimeout, cfg.heartbeat(), cfg.DBTimeout)
		fs.Judge("lease",
			doctor.Warn(cfg.heartbeat()+cfg.DBTimeout*6/5 >= cfg.LeaseTimeout,
				found+": one hanging statement would end the lease and all running jobs",
				"raise FORGERUN_LEASE_TIMEOUT above twice FORGERUN_DB_TIMEOUT"),
			doctor.OK(found))
	}
	if role != "dev" { // dev is meant for a local machine, so judge only other roles
		judgeExposure(fs, role, cfg)
	}
}

func judgeExposure(fs *doctor.Findings, role string, cfg Config) {
	fs.Judge("admin listener",
		doctor.Warn(!onLoopback(cfg.AdminAddr),
			cfg.AdminAddr+" is not on loopback: anyone who reaches it can read /metrics and /readyz without the token",
			"let only Prometheus and operators reach it (firewall, private network), or set FORGERUN_ADMIN_ADDR to 127.0.0.1:8081"),
		doctor.OK(cfg.AdminAddr+" is on loopback"))
	if cfg.PublicURL != "" || role == "api" {
		const advice = "set FORGERUN_PUBLIC_URL to the URL that clients use, such as https://forgerun.example.com, in all roles"
		u, err := url.Parse(cfg.PublicURL)
		fs.Judge("public URL",
			doctor.Warn(cfg.PublicURL == "", "not set: links and problem types begin with http://"+cfg.HTTPAddr, advice),
			doctor.Warn(err == nil && onLoopback(net.JoinHostPort(u.Hostname(), "0")),
				cfg.PublicURL+" is on loopback: links point other users to their own machine", advice),
			doctor.Warn(strings.HasPrefix(cfg.PublicURL, "http://"), cfg.PublicURL+" is not https: API keys are sent unencrypted",
				"put TLS in front of the API, and "+advice),
			doctor.OK(cfg.PublicURL))
	}
	if role == "api" && cfg.OpenRegistration {
		fs.Judge("registration", doctor.Warn(true, "open: anyone who reaches the API may create clients and keys",
			"set FORGERUN_OPEN_REGISTRATION=false and create clients with FORGERUN_ADMIN_TOKEN"))
		judgeConsent(fs, cfg)
	}
	fs.Judge("webhook targets", doctor.Warn((role == "api" || role == "deliverer") && cfg.WebhookAllowPrivate,
		"clients can make this service call private addresses of its network, including loopback",
		"set FORGERUN_WEBHOOK_ALLOW_PRIVATE=false, unless every client is trusted"))
}

func judgeConsent(fs *doctor.Findings, cfg Config) {
	fs.Judge("webhook consent",
		doctor.Warn(!cfg.WebhookChallenge,
			"not required: anyone who reaches the API can send events to receivers that did not agree",
			"set FORGERUN_WEBHOOK_CHALLENGE=true for api and deliverer processes, or FORGERUN_OPEN_REGISTRATION=false; "+
				"FORGERUN_WEBHOOK_CLIENT_RATE limits how much is sent"),
		doctor.OK("receivers are asked for consent, in the name of "+webhook.Origin(cfg.PublicURL)))
}

// judgeMasterKey reports a missing master key, or a master key that cannot decrypt the signing keys in the database. `state` is nil if the
// database could not be read.
func judgeMasterKey(fs *doctor.Findings, role string, cfg Config, state *repo.State) {
	if vault, err := webhook.NewVault(cfg.MasterKey); err == nil && role != "worker" && state != nil {
		wrong := ""
		if err := vault.Check(state.SigningKeys); err != nil {
			wrong = err.Error()
		}
		fs.Judge("master key",
			doctor.Fail(wrong != "", wrong, "set FORGERUN_MASTER_KEY to the key of the other processes: with the present key, api processes stop, "+
				"and no process can sign deliveries or read webhook secrets"),
			doctor.OK(fmt.Sprintf("fits the %d signing keys in the database", len(state.SigningKeys))))
	}
	found := "none: clients cannot register webhooks"
	if state != nil && state.HasWebhooks {
		found += " or rotate the secrets of existing ones"
	}
	fs.Judge("master key", doctor.Warn(role == "api" && cfg.MasterKey == nil, found,
		"set FORGERUN_MASTER_KEY as for the deliverer; to generate the first one: openssl rand -base64 32"))
}
