// Package doctor examines the Postgres and Redis servers in the configuration of a role, and gives advice. It does not write to them.
package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/queue"
)

// Severity is the severity of a finding.
type Severity string

// Severities.
const (
	Healthy Severity = "ok"
	Warning Severity = "warn" // works, but not as expected
	Failing Severity = "FAIL" // does not work, or loses acknowledged data
)

// Finding is one line of the report.
type Finding struct {
	Level  Severity `json:"level"`
	What   string   `json:"what"`  // what was examined
	Found  string   `json:"found"` // what was observed, without secrets
	Advice string   `json:"advice,omitempty"`
}

func (f Finding) String() string {
	line := fmt.Sprintf("%-4s  %s: %s", f.Level, f.What, f.Found)
	if f.Advice != "" {
		line += " -> " + f.Advice
	}
	return line
}

// Findings are the report.
type Findings []Finding

// Case is a finding that is reported if Applies is true.
type Case struct {
	Applies       bool
	level         Severity
	found, advice string
}

// OK returns a case that always applies and reports no problem.
func OK(found string) Case { return Case{true, Healthy, found, ""} }

// Warn returns a case of severity Warning.
func Warn(applies bool, found, advice string) Case { return Case{applies, Warning, found, advice} }

// Fail returns a case of severity Failing.
func Fail(applies bool, found, advice string) Case { return Case{applies, Failing, found, advice} }

// Judge adds the finding of the first case that applies, if there is one.
func (fs *Findings) Judge(what string, cases ...Case) {
	for _, c := range cases {
		if c.Applies {
			*fs = append(*fs, Finding{c.level, what, c.found, c.advice})
			return
		}
	}
}

// Count returns the number of findings of a severity.
func (fs Findings) Count(s Severity) (n int) {
	for _, f := range fs {
		if f.Level == s {
			n++
		}
	}
	return n
}

// Write writes the report as text or JSON. `paint` colors the text of a severity.
func (fs Findings) Write(w io.Writer, asJSON bool, paint func(s Severity, text string) string) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(fs)
	}
	var text strings.Builder
	for _, f := range fs {
		line := strings.TrimPrefix(strings.ReplaceAll(f.String(), "\n", " "), string(f.Level))
		text.WriteString(paint(f.Level, string(f.Level)) + line + "\n")
	}
	var counts []string
	for _, s := range []Severity{Failing, Warning, Healthy} {
		count := fmt.Sprintf("%d %s", fs.Count(s), s)
		if fs.Count(s) > 0 {
			count = paint(s, count)
		}
		counts = append(counts, count)
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n", &text, strings.Join(counts, ", "))
	return err
}

// Postgres' clock determines leases and due times. This machine's clock determines when API keys expire and when Redis releases waiting
// tasks. Signatures contain the time of this machine's clock. If the clocks differ by a second, jobs start late or early. If they differ
// by more than half a minute, asynq takes tasks away from live workers.
const (
	clockWarn = time.Second
	clockFail = 30 * time.Second
)

// judgeClock subtracts half the round trip from the measured difference, because the error of the measurement may be as large.
func (fs *Findings) judgeClock(what string, ahead, roundTrip time.Duration) {
	direction := "ahead of"
	if ahead < 0 {
		direction, ahead = "behind", -ahead
	}
	certain := ahead - roundTrip/2
	found := fmt.Sprintf("%v %s this machine's clock (uncertain by up to %v)", round(ahead), direction, round(roundTrip/2))
	const advice = "synchronise the clocks of both machines by NTP (chronyc tracking, timedatectl)"
	fs.Judge(what,
		Fail(certain > clockFail, found+": asynq takes tasks away from live workers, and receivers reject signatures", advice),
		Warn(certain > clockWarn, found+": API keys expire and waiting tasks start early or late by that much", advice),
		OK(found))
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// InspectTimeout limits the inspection of both stores, including the connections.
const InspectTimeout = 8 * time.Second

// Inspect inspects and judges both stores. Either address may be empty. It returns the service's state, or nil if Postgres cannot be
// inspected.
func (fs *Findings) Inspect(ctx context.Context, role, databaseURL, redisURL string) *repo.State {
	ctx, cancel := context.WithTimeout(ctx, InspectTimeout)
	defer cancel()
	var postgres repo.Inspection
	var redis queue.Inspection
	var postgresErr, redisErr error
	var group sync.WaitGroup
	if databaseURL != "" {
		group.Go(func() { postgres, postgresErr = repo.Inspect(ctx, databaseURL) })
	}
	if redisURL != "" {
		group.Go(func() { redis, redisErr = queue.Inspect(ctx, redisURL) })
	}
	group.Wait()
	// The role dev needs no addresses, because it can start its own servers. For other roles, the check of the configuration reports a missing
	// address.
	notRunning := func(address string) Case {
		return Case{role == "dev" && address == "", Healthy, "not checked: dev starts its own server, and dev is not running", ""}
	}
	fs.Judge("Postgres", notRunning(databaseURL))
	if databaseURL != "" {
		fs.judgePostgres(role, postgres, postgresErr)
	}
	fs.Judge("Redis", notRunning(redisURL))
	if redisURL != "" {
		fs.judgeRedis(redis, redisErr)
	}
	return postgres.State
}

type adviceFor map[error]string

func (known adviceFor) judge(fs *Findings, store, address, variable string, err error) {
	place := "at " + address
	if address == "" {
		place = "(" + variable + ")"
	}
	for reason, advice := range known {
		fs.Judge(store, Fail(errors.Is(err, reason), place+" "+err.Error(), advice))
	}
}
