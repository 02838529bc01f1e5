// Package doctor examines the stores that a role of the service is configured for,
// and says what to do about what it finds. It writes nothing to them.
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Severity says how bad a finding is.
type Severity string

// Severities.
const (
	Healthy Severity = "ok"
	Warning Severity = "warn" // works, but will surprise somebody
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

// Warn adds what works, but will surprise somebody.
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

// Write writes the report as text or JSON. paint shows the severities and the advice of the text in colours; nil for none.
func (fs Findings) Write(w io.Writer, asJSON bool, paint func(s Severity, text string) string) error {
	if asJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(fs)
	}
	if paint == nil {
		paint = func(_ Severity, text string) string { return text }
	}
	for _, f := range fs {
		line := f.String()[levelWidth:]
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
// it stamps signatures. A second is what somebody may notice; beyond half a
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
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(time.Microsecond)
}
