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
	"sync"
	"time"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/queue"
)

// severity says how bad a finding is.
type severity string

const (
	healthy severity = "ok"
	warning severity = "warn" // works, but will surprise somebody
	failing severity = "FAIL" // does not work, or loses what was acknowledged
)

// finding is one line of the doctor's report.
type finding struct {
	Level  severity `json:"level"`
	What   string   `json:"what"`             // was looked at
	Found  string   `json:"found"`            // never a secret
	Advice string   `json:"advice,omitempty"` // what to do about it; "" if nothing
}

func (f finding) String() string {
	line := fmt.Sprintf("%-4s  %s: %s", f.Level, f.What, f.Found)
	if f.Advice != "" {
		line += " -> " + f.Advice
	}
	return line
}

type findings []finding

func (fs *findings) ok(what, found string) { *fs = append(*fs, finding{healthy, what, found, ""}) }

func (fs *findings) warn(what, found, advice string) {
	*fs = append(*fs, finding{warning, what, found, advice})
}

func (fs *findings) fail(what, found, advice string) {
	*fs = append(*fs, finding{failing, what, found, advice})
}

func (fs findings) count(s severity) (n int) {
	for _, f := range fs {
		if f.Level == s {
			n++
		}
	}
	return n
}

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
	if err := all.print(stdout, asJSON); err != nil {
		_, _ = fmt.Fprintln(stderr, "forgerun doctor:", err)
		return 1
	}
	switch {
	case bad != nil:
		return 2
	case all.count(failing) > 0:
		return 1
	}
	return 0
}

func (fs findings) print(w io.Writer, asJSON bool) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(fs)
	}
	for _, f := range fs {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%d FAIL, %d warn, %d ok\n", fs.count(failing), fs.count(warning), fs.count(healthy))
	return err
}

// examinePatience bounds the look at one store, connect included.
const examinePatience = 8 * time.Second

// notRunning is of a dev that has no store for somebody to look at. The other
// roles do not start without an address: the configuration's finding.
const notRunning = "dev starts its own; it does not run now, so there is nothing to look at"

// examine gathers the facts, from both stores at once, and judges them. A bad
// configuration keeps it from nothing that can be looked at all the same.
func examine(ctx context.Context, role string, cfg Config, bad error, unknown []string) findings {
	var found findings
	found.judgeConfig(role, cfg, bad, unknown)
	if role == "dev" {
		cfg.addDevStores()
	}
	ctx, cancel := context.WithTimeout(ctx, examinePatience)
	defer cancel()
	var postgres repo.Inspection
	var redis queue.Inspection
	var noPostgres, noRedis error
	var looks sync.WaitGroup
	if cfg.DatabaseURL != "" {
		looks.Go(func() { postgres, noPostgres = repo.Inspect(ctx, cfg.DatabaseURL) })
	}
	if cfg.RedisURL != "" {
		looks.Go(func() { redis, noRedis = queue.Inspect(ctx, cfg.RedisURL) })
	}
	looks.Wait()
	switch {
	case cfg.DatabaseURL != "":
		found.judgePostgres(role, postgres, noPostgres)
	case role == "dev":
		found.ok("Postgres", notRunning)
	}
	switch {
	case cfg.RedisURL != "":
		found.judgeRedis(redis, noRedis)
	case role == "dev":
		found.ok("Redis", notRunning)
	}
	found.judgeMasterKey(role, cfg, postgres.State)
	if postgres.State != nil {
		found.judgeState(*postgres.State)
		if noRedis == nil && len(redis.Servers) > 0 {
			found.judgeEpoch(*postgres.State, redis)
		}
	}
	return found
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

// Postgres' clock decides leases and due times, for everybody. This machine's
// clock decides when API keys end and when Redis lets go of waiting tasks, and
// it stamps signatures. A second is what somebody may notice; beyond half a
// minute asynq takes tasks away from workers that are alive.
const (
	clockWarn = time.Second
	clockFail = 30 * time.Second
)

// judgeClock judges by how much a store's clock is ahead for certain: the
// answer was on its way for an unknown part of the round trip.
func (fs *findings) judgeClock(what string, ahead, roundTrip time.Duration) {
	direction, exactly := "ahead of", ahead
	if ahead < 0 {
		direction, exactly = "behind", -ahead
	}
	found := fmt.Sprintf("%v %s this machine's (measured to %v)", round(exactly), direction, round(roundTrip/2))
	const advice = "synchronise the clocks of both machines by NTP (chronyc tracking, timedatectl)"
	switch surely := exactly - roundTrip/2; {
	case surely > clockFail:
		fs.fail(what, found+": asynq takes tasks away from live workers, receivers refuse signatures", advice)
	case surely > clockWarn:
		fs.warn(what, found+": API keys end and waiting tasks come early or late by that", advice)
	default:
		fs.ok(what, found)
	}
}

// round keeps what a person reads of a duration.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
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
