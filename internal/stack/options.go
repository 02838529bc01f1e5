package stack

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options describe a stack.
type Options struct {
	Forgerun    string
	Dir         string            // created if missing; Close keeps the folder "logs" in it
	Concurrency int               // concurrent jobs in a worker process; 0 means 100
	TimeScale   float64           // factor of jobs' durations; 0: jobs take no time
	Env         map[string]string // FORGERUN_ variables, which override the stack's own values; must not contain the variables in Addresses
	Listen      string            // listen address of the API, only used if Faults is set; "": any free port of 127.0.0.1
	APIs        int               // number of api processes; 0 means 1; more than 1 needs Faults
	Workers     int               // number of worker processes at the start; Scale changes it
	Lease       time.Duration     // a worker without a heartbeat for this long counts as dead; 0 means 3 s
	Faults      bool              // connections to Postgres, Redis, the API and receivers go through proxies
	Clock       bool              // the service is a test bed, and faults may move its clock
	// DatabaseURL and RedisURL are the addresses of external servers; set both or neither. With external servers, the stack starts only
	// workers. Faults then do not affect the servers, and only receivers get a proxy.
	DatabaseURL, RedisURL string
	Log                   io.Writer // lines about starts and unexpected ends; may be nil
}

func (o Options) foreign() bool { return o.DatabaseURL != "" }

func (o Options) complete() (Options, error) {
	if (o.DatabaseURL == "") != (o.RedisURL == "") {
		return o, errors.New("the addresses of Postgres and Redis must both be set, or neither")
	}
	for name := range o.Env {
		if !strings.HasPrefix(name, "FORGERUN_") {
			return o, fmt.Errorf("variable %s cannot be set: its name must begin with FORGERUN_", name)
		}
		if slices.Contains(Addresses, name) {
			return o, fmt.Errorf("variable %s cannot be set: the simulator chooses this address", name)
		}
	}
	o.Lease, o.Concurrency, o.APIs = cmp.Or(o.Lease, 3*time.Second), cmp.Or(o.Concurrency, 100), cmp.Or(o.APIs, 1)
	if o.Log == nil {
		o.Log = io.Discard
	}
	dir, err := filepath.Abs(o.Dir)
	o.Dir = dir
	return o, err
}

// Addresses are the variables that Options.Env cannot override.
var Addresses = []string{"FORGERUN_DATABASE_URL", "FORGERUN_REDIS_URL", "FORGERUN_HTTP_ADDR", "FORGERUN_ADMIN_ADDR"}

// environ holds the variables that all processes share. Listen addresses differ per process, so they are not included.
type environ map[string]string

// newEnviron sets short backoffs, so that the service recovers from faults within seconds. It sets the log level to "warn", so that the
// logs of long runs stay small.
func newEnviron(o Options, databaseURL, redisURL string) environ {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	env := environ{
		"FORGERUN_TIME_SCALE":            fmt.Sprintf("%g", o.TimeScale),
		"FORGERUN_WORKER_CONCURRENCY":    fmt.Sprint(o.Concurrency),
		"FORGERUN_LEASE_TIMEOUT":         o.Lease.String(),
		"FORGERUN_SHUTDOWN_GRACE":        "5s",
		"FORGERUN_RETRY_BACKOFF_BASE":    "200ms",
		"FORGERUN_RETRY_BACKOFF_MAX":     "2s",
		"FORGERUN_WEBHOOK_TIMEOUT":       "2s",
		"FORGERUN_WEBHOOK_BACKOFF_BASE":  "200ms",
		"FORGERUN_WEBHOOK_BACKOFF_MAX":   "2s",
		"FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true",
		"FORGERUN_OPEN_REGISTRATION":     "true",
		"FORGERUN_RATE_LIMIT_PER_MINUTE": "1000000000",
		"FORGERUN_CLIENT_MAX_ACTIVE":     "1000000000", // because one client may submit the whole load
		"FORGERUN_MASTER_KEY":            base64.StdEncoding.EncodeToString(key),
		"FORGERUN_LOG_LEVEL":             "warn",
		"FORGERUN_LOG_FORMAT":            "json",
	}
	if o.Clock { // a clock jump may skip days; jobs and API keys must not expire by a jump
		env["FORGERUN_TESTBED"] = "true"
		env["FORGERUN_API_KEY_TTL"], env["FORGERUN_RETENTION_JOBS"], env["FORGERUN_WEBHOOK_DISABLE_AFTER"] = "8760h", "8760h", "8760h"
	}
	maps.Copy(env, o.Env)
	env["FORGERUN_DATABASE_URL"], env["FORGERUN_REDIS_URL"] = databaseURL, redisURL
	return env
}

func (e environ) list() []string {
	all := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "FORGERUN_") })
	for name, value := range e {
		all = append(all, name+"="+value)
	}
	return all
}

// stopPatience limits the time in which a process must stop. It is the process's grace period, plus 20 s for writes to stores that do not
// respond.
func (e environ) stopPatience() time.Duration {
	grace, _ := time.ParseDuration(e["FORGERUN_SHUTDOWN_GRACE"]) // the processes reject a bad value
	return grace + 20*time.Second
}

// maxWorkers limits the connections to Postgres, which allows 1,000. Each worker process uses about 20.
const maxWorkers = 32

// Schedule says how many workers run in each part of a run. All parts are equally long.
type Schedule struct{ steps []int }

// ParseWorkers reads "4" (a constant number), "1..8" (a ramp, up or down) or "1,4,2" (steps of equal length).
func ParseWorkers(text string) (Schedule, error) {
	counts := strings.Split(text, ",")
	first, last, isRamp := strings.Cut(text, "..")
	if isRamp {
		counts = []string{first, last}
	}
	var s Schedule
	for i, count := range counts {
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 1 || n > maxWorkers {
			return Schedule{}, fmt.Errorf("workers %q: %q is not a number from 1 to %d; set a number (4), a ramp (1..8) or steps (1,4,2)",
				text, count, maxWorkers)
		}
		if !isRamp || i == 0 {
			s.steps = append(s.steps, n)
			continue
		}
		for at := s.steps[0]; at != n; {
			at += cmp.Compare(n, at)
			s.steps = append(s.steps, at)
		}
	}
	return s, nil
}

// At returns the number of workers when the given share of the run is over: 0 is the start of the run, 1 is the end.
func (s Schedule) At(share float64) int {
	if len(s.steps) == 0 {
		return 1
	}
	i := int(share * float64(len(s.steps)))
	return s.steps[min(max(i, 0), len(s.steps)-1)]
}
