// Package doctor examines the stores that a role of the service is configured for,
// and says what to do about what it finds. It writes nothing to them.
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

// Severity says how bad a finding is.
type Severity string

// Severities.
const (
	Healthy Severity = "ok"
	Warning Severity = "warn" // works, but not as expected
	Failing Severity = "FAIL" // does not work, or loses what was acknowledged
)

// Finding is one line of the report.
type Finding struct {
	Level  Severity `json:"level"`
	What   string   `json:"what"`             // was looked at
	Found  string   `json:"found"`            // never a secret
	Advice string   `json:"advice,omitempty"` // what to do about it; "" if nothing
}

// levelWidth is the width of the longest severity.
const levelWidth = 4

func (f Finding) String() string {
	line := fmt.Sprintf("%-*s  %s: %s", levelWidth, f.Level, f.What, f.Found)
	if f.Advice != "" {
		line += " -> " + f.Advice
	}
	return line
}

// Findings are the report.
type Findings []Finding

// OK adds what is well.
func (fs *Findings) OK(what, found string) { *fs = append(*fs, Finding{Healthy, what, found, ""}) }

// Warn adds what works, but not as expected.
func (fs *Findings) Warn(what, found, advice string) {
	*fs = append(*fs, Finding{Warning, what, found, advice})
}

// Fail adds what does not work.
func (fs *Findings) Fail(what, found, advice string) {
	*fs = append(*fs, Finding{Failing, what, found, advice})
}

// Count counts the findings of a severity.
func (fs Findings) Count(s Severity) (n int) {
	for _, f := range fs {
		if f.Level == s {
			n++
		}
	}
	return n
}

// Write writes the report as text or JSON. paint shows the severities of the text in colours.
func (fs Findings) Write(w io.Writer, asJSON bool, paint func(s Severity, text string) string) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(fs)
	}
	for _, f := range fs {
		line := strings.ReplaceAll(f.String()[levelWidth:], "\n", " ")
		if _, err := fmt.Fprintln(w, paint(f.Level, fmt.Sprintf("%-*s", levelWidth, f.Level))+line); err != nil {
			return err
		}
	}
	counts := make([]string, 0, 3)
	for _, s := range []Severity{Failing, Warning, Healthy} {
		text := fmt.Sprintf("%d %s", fs.Count(s), s)
		if fs.Count(s) > 0 {
			text = paint(s, text)
		}
		counts = append(counts, text)
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(counts, ", "))
	return err
}

// Postgres' clock decides leases and due times, for everybody. This machine's
// clock decides when API keys end and when Redis lets go of waiting tasks, and
// it stamps signatures. A second may be noticed; beyond half a
// minute asynq takes tasks away from workers that are alive.
const (
	clockWarn = time.Second
	clockFail = 30 * time.Second
)

// judgeClock judges by how much a store's clock is ahead for certain: the
// answer was on its way for an unknown part of the round trip.
func (fs *Findings) judgeClock(what string, ahead, roundTrip time.Duration) {
	direction, exactly := "ahead of", ahead
	if ahead < 0 {
		direction, exactly = "behind", -ahead
	}
	found := fmt.Sprintf("%v %s this machine's (measured to %v)", round(exactly), direction, round(roundTrip/2))
	const advice = "synchronise the clocks of both machines by NTP (chronyc tracking, timedatectl)"
	switch surely := exactly - roundTrip/2; {
	case surely > clockFail:
		fs.Fail(what, found+": asynq takes tasks away from live workers, receivers refuse signatures", advice)
	case surely > clockWarn:
		fs.Warn(what, found+": API keys end and waiting tasks come early or late by that", advice)
	default:
		fs.OK(what, found)
	}
}

// round keeps what a person reads of a duration.
func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// InspectTimeout bounds the inspection of one store, connect included.
const InspectTimeout = 8 * time.Second

// notRunning is of a dev that has no store to inspect. The other roles do not start
// without an address: the configuration's finding.
const notRunning = "dev starts its own; it does not run now, so there is nothing to look at"

// Stores is what was found out about the stores of a role.
type Stores struct {
	Role, DatabaseURL, RedisURL string // the addresses may be empty

	postgres              repo.Inspection
	redis                 queue.Inspection
	postgresErr, redisErr error
}

// Inspect gathers the facts from both stores at once.
func (s *Stores) Inspect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, InspectTimeout)
	defer cancel()
	var group sync.WaitGroup
	if s.DatabaseURL != "" {
		group.Go(func() { s.postgres, s.postgresErr = repo.Inspect(ctx, s.DatabaseURL) })
	}
	if s.RedisURL != "" {
		group.Go(func() { s.redis, s.redisErr = queue.Inspect(ctx, s.RedisURL) })
	}
	group.Wait()
}

// State is what the database says of the service; nil if it is not known.
func (s *Stores) State() *repo.State { return s.postgres.State }

// JudgeServers judges both servers.
func (fs *Findings) JudgeServers(s *Stores) {
	switch {
	case s.DatabaseURL != "":
		fs.judgePostgres(s.Role, s.postgres, s.postgresErr)
	case s.Role == "dev":
		fs.OK("Postgres", notRunning)
	}
	switch {
	case s.RedisURL != "":
		fs.judgeRedis(s.redis, s.redisErr)
	case s.Role == "dev":
		fs.OK("Redis", notRunning)
	}
}

// obstacle is a reason why a store cannot be inspected.
type obstacle struct {
	err    error
	advice string
}

func (fs *Findings) judgeObstacle(store, address, variable string, err error, known []obstacle) {
	if address == "" {
		address = "(" + variable + ")"
	} else {
		address = "at " + address
	}
	for _, o := range known {
		if errors.Is(err, o.err) {
			fs.Fail(store, address+" "+err.Error(), o.advice)
		}
	}
}

// JudgeService judges which processes of the service are there.
func (fs *Findings) JudgeService(s *Stores) {
	if s.postgres.State != nil {
		fs.judgeState(*s.postgres.State)
	}
}
