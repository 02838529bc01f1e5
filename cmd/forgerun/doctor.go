package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/internal/doctor"
)

// runDoctor looks at the configuration of a role and at its stores, and says
// what to do about what it finds. It writes nothing anywhere.
func runDoctor(ctx context.Context, args []string, getenv func(string) string, environ []string, stdout, stderr io.Writer) int {
	role, asJSON := "", false
	for _, arg := range args {
		switch {
		case isHelp(arg):
			_, _ = fmt.Fprint(stdout, usage)
			return 0
		case arg == "--json" || arg == "-json":
			asJSON = true
		case role == "" && slices.Contains([]string{"dev", "api", "worker", "webhooks"}, arg):
			role = arg
		default:
			_, _ = fmt.Fprintln(stderr, "forgerun doctor: use 'doctor [--json] [ROLE]', with role api (the default), worker, webhooks or dev.")
			return 2
		}
	}
	if role == "" {
		role = "api"
	}
	cfg, bad := LoadConfig(role, getenv)
	all := examine(ctx, role, cfg, bad, unknownVariables(environ))
	if err := all.Write(stdout, asJSON); err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun doctor:", err)
		return 1
	}
	switch {
	case bad != nil:
		return 2
	case all.Count(doctor.Failing) > 0:
		return 1
	}
	return 0
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

// judgeFiles says how many connections a process that is started in the same
// place can have: the limit of open files is inherited.
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

// addDevStores fills in the stores that a running dev started itself. They are
// in the file in which it publishes its addresses.
func (c *Config) addDevStores() {
	var noted struct {
		DatabaseURL string `json:"database_url"`
		RedisURL    string `json:"redis_url"`
	}
	content, err := os.ReadFile(filepath.Join(c.DataDir, "dev.json"))
	if err != nil || json.Unmarshal(content, &noted) != nil {
		return // it does not run
	}
	if c.DatabaseURL == "" {
		c.DatabaseURL = noted.DatabaseURL
	}
	if c.RedisURL == "" {
		c.RedisURL = noted.RedisURL
	}
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
