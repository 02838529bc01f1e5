// Package scenario reads scenario files and plans the requests of a simulator run.
//
// A scenario is a YAML file. Every mistake is reported with its place and the allowed values. A scenario and a seed determine all planned
// requests; the service's responses have no influence. This package sends no requests.
package scenario

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// The types of a job (API contract, section 8).
const (
	Execute   = "EXECUTE"
	Deferred  = "DEFERRED"
	EmitEvent = "EMIT_EVENT"
)

// Values of Scenario.Pick: how the next entry of Mix is chosen.
const (
	Weighted = "weighted" // by chance, in proportion to the weights
	InTurn   = "in_turn"  // all kinds of all entries, in the order of the file, repeated endlessly
)

// Values of Duplicate.Key: the idempotency keys of the copies.
const (
	SameKey       = "same"
	DifferentKeys = "different"
)

// Scenario is a complete file, with defaults filled in.
type Scenario struct {
	Name        string // letters, digits, dashes and underscores; default: the name of the file
	Description string
	Seed        uint64        // default 1
	Duration    time.Duration // how long jobs are submitted; 0: until Jobs requests were sent
	Jobs        int64         // number of requests; 0: as many as fit in Duration
	Drain       time.Duration // maximum time to wait for the end of jobs after the last submission
	Tenants     int           // how many clients of the service share the load
	Arrival     Arrival
	Pick        string // Weighted or InTurn
	Mix         []Work // at least one
	Receivers   []Receiver
	Readers     Readers
	Schedules   Schedules
	Service     Service
	Chaos       string // faults, in the syntax of --chaos; "" means none
	Expect      Expect
	Text        string `yaml:"-"` // the file
}

// Arrival determines when jobs are submitted. Exactly one field is set.
type Arrival struct {
	Closed *Closed
	Open   []Phase // phases of an open loop, repeated in order until the end of the run
}

// Closed is a closed loop: each client submits a job, waits for its end, pauses for Think, and starts again.
type Closed struct {
	Clients int // number of clients, of all tenants together
	Think   Range
}

// Phase is a part of an open loop, in which send times do not depend on responses. Without bursts, the rate changes linearly from From to
// To, in jobs per second.
type Phase struct {
	For      time.Duration // never 0
	From, To float64       `yaml:"-"` // equal for a constant rate
	Poisson  bool          `yaml:"-"` // random gaps between jobs, as with independent clients; false: equal gaps
	Burst    int           // number of jobs sent at the same time; 0: the phase has a rate instead
	Every    time.Duration // time from one burst to the next; never 0 if Burst is set
}

// Share is a fraction from 0 to 1. A file may also write a percentage.
type Share float64

// Range is a random duration from Min to Max. If they are equal, the duration is fixed.
type Range struct{ Min, Max time.Duration }

// Work is an entry of Scenario.Mix. It describes a kind of request, and what the client does with the jobs.
type Work struct {
	Kinds       []string `yaml:"-"` // possible work kinds of a job; empty for EMIT_EVENT
	Weight      float64  // for Weighted: above 0; for InTurn: 1
	Type        string   // Execute, Deferred or EmitEvent
	Ahead       Range    // only for Deferred: time from the send time to execution_at
	Cancel      *Cancel
	Retry       *Retry
	Duplicate   *Duplicate
	AutoRetry   bool   `yaml:"auto_retry"`
	Batch       int    // items of one request; 0: a single job, not a batch
	Callback    string // name of a receiver that has Callback set; "": none
	ParamsBytes int    `yaml:"params_bytes"` // size of the job's params; 0: none
	Expect      string // how each job must end, such as SUCCEEDED; "": not checked
}

// Cancel is a request to cancel a job. The client sends it some time after it has seen the job in the state `In`.
type Cancel struct {
	In    string // CREATED, QUEUED, ASSIGNED or RUNNING
	After Range
	Share Share // fraction of the entry's jobs that are canceled
}

// Retry is a client's retry of a failed job.
type Retry struct {
	Share Share // fraction of the entry's jobs that are retried if they fail
	Max   int   // maximum number of retries of one job
}

// Duplicate describes how a client repeats submissions.
type Duplicate struct {
	Share  Share  // fraction of the entry's requests that are repeated
	Copies int    // additional requests
	Key    string // SameKey: the request and its copies create one job; DifferentKeys: each copy creates a job
	AtOnce bool   `yaml:"at_once"` // sent at the same time instead of one after another
}

// Receiver is an endpoint for webhook messages. It is either a webhook that each tenant registers, or the callback of jobs.
type Receiver struct {
	Name     string   // lower-case letters, digits and dashes; unique
	Events   []string // events that the webhook subscribes to; empty for a callback
	Answers  []Answer // at least one; their shares add up to 1
	Callback bool     // the receiver is a callback, not a webhook
}

// Answer is a possible response of a receiver. Hang makes the receiver never respond, and Reset makes it reset the connection.
type Answer struct {
	Status int // 0 with Hang or Reset
	After  time.Duration
	Hang   bool
	Reset  bool
	Share  Share
	First  int // the first attempts of each delivery, up to number First, get this response; Share is then 0
}

// Readers determine how clients observe the end of their jobs.
type Readers struct {
	Streams   int           // event streams that each tenant reads
	Slow      int           // further event streams per tenant, which are read slowly and not recorded
	SlowPause time.Duration `yaml:"slow_pause"` // pause after each message of a slow stream
	Poll      Share         // fraction of jobs that are also polled
}

// Schedules describes the schedules of each tenant. Each schedule creates a job at the interval Every, until the end of Scenario.Duration.
type Schedules struct {
	Count int
	Every time.Duration
}

// Service is the configuration of a service started by the simulator.
type Service struct {
	Workers     string            // number of worker processes: constant ("2"), rising ("1..4") or in steps ("1,4,2")
	Concurrency int               // concurrent jobs in each process
	Down        Range             // all processes are down from Min to Max after the start of the run; zero: never
	TimeScale   *float64          `yaml:"time_scale"` // multiplies the catalogue's durations; nil: unset
	Env         map[string]string // further FORGERUN_ settings
}

// Expect has values that a run must reach, in addition to the invariants.
type Expect struct {
	Accepted  Share         // minimum fraction of submissions with an expected response; if it is not reached, the run is inconclusive
	Refused   *Share        // maximum fraction of submissions refused because of overload; nil: unchecked
	SubmitP99 time.Duration `yaml:"submit_p99"` // limit of the 99th percentile from the planned send time to the response; 0: unchecked
	FinishP99 time.Duration `yaml:"finish_p99"` // limit of the 99th percentile from the planned send time to the job's end; 0: unchecked
}

//go:embed files/*.yaml
var files embed.FS

const maxFile = 64 << 10

// Names lists the ready-made scenarios in alphabetical order.
func Names() []string {
	found, err := fs.Glob(files, "files/*.yaml")
	if err != nil {
		panic(err) // cannot fail: the pattern is valid
	}
	for i, f := range found {
		found[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return found
}

// Text returns the file of a ready-made scenario, or fs.ErrNotExist for another name.
func Text(name string) ([]byte, error) {
	return files.ReadFile("files/" + name + ".yaml")
}

// Load reads the ready-made scenario `name`. If there is none, or the name begins with ./, it reads a file.
func Load(name string) (*Scenario, error) {
	if text, err := Text(name); err == nil {
		return Parse(name+".yaml", text)
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(name) == name {
		return nil, fmt.Errorf("unknown scenario %q: neither a file nor one of %s",
			name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the scenario: %w", err)
	}
	return Parse(name, text)
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

func nameOf(file string) string {
	base := filepath.Base(file)
	name := strings.Trim(notInNames.ReplaceAllString(strings.TrimSuffix(base, filepath.Ext(base)), "-"), "-_")
	if name == "" {
		return "scenario"
	}
	return name[:min(len(name), 64)]
}
