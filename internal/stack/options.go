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
	"strings"
	"time"
)

// Options says what a stack is made of.
type Options struct {
	// Forgerun is the path of the binary.
	Forgerun string
	// Dir is the folder for the logs (in "logs"), which stay. It is made when it is missing.
	Dir string
	// Concurrency is the number of jobs at once in a worker process; 0: 100.
	Concurrency int
	// TimeScale multiplies the jobs' durations; 0: jobs take no time.
	TimeScale float64
	// Env is further configuration (FORGERUN_...), which overrides what the stack
	// sets. The addresses of the stores and of the processes cannot be set.
	Env map[string]string
	// Listen is the address of the API with Faults; "" for any port of 127.0.0.1.
	Listen string
	// APIs is the number of api processes, more than one only with Faults; 0: one.
	APIs int
	// Workers is the number of worker processes at first; see Scale.
	Workers int
	// Lease is after how long a silent worker is dead; 0: 3 s.
	Lease time.Duration
	// Faults leads the connections to Postgres, Redis, the API and receivers through proxies.
	Faults bool
	// Clock makes the service a test bed, whose clock faults may move.
	Clock bool
	// DatabaseURL and RedisURL, both or none, are servers of others.
	// Beside them only workers are started. No fault is done to them, and no proxy
	// stands before anything but receivers.
	DatabaseURL, RedisURL string
	// Log gets a line for each process that starts, and for each unasked end; nil: none.
	Log io.Writer
}

func (o Options) foreign() bool { return o.DatabaseURL != "" }

// complete checks the options and fills in what was left out.
func (o Options) complete() (Options, error) {
	if o.Forgerun == "" || o.Dir == "" {
		return o, errors.New("stack: Forgerun and Dir are required")
	}
	if (o.DatabaseURL == "") != (o.RedisURL == "") {
		return o, errors.New("the addresses of Postgres and Redis are given together, or neither of them")
	}
	if o.APIs < 0 || o.Workers < 0 || o.Concurrency < 0 || o.TimeScale < 0 {
		return o, errors.New("stack: a number of the options is negative")
	}
	if !o.Faults && (o.Listen != "" || o.APIs > 1) {
		return o, errors.New("stack: Listen, and more than one api process, need Faults")
	}
	for name := range o.Env {
		if !strings.HasPrefix(name, "FORGERUN_") {
			return o, fmt.Errorf("variable %s: only those that begin with FORGERUN_ can be set", name)
		}
		if slices.Contains(Addresses, name) {
			return o, fmt.Errorf("variable %s cannot be set: the address is the simulator's own", name)
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

// Addresses are the variables that a stack itself sets.
var Addresses = []string{"FORGERUN_DATABASE_URL", "FORGERUN_REDIS_URL", "FORGERUN_HTTP_ADDR", "FORGERUN_ADMIN_ADDR"}

// environ is the configuration of all processes, without the addresses that each of them listens on.
type environ map[string]string

// newEnviron sets short leases and backoffs, so that faults heal within seconds, and a log level at which a long run
// does not fill the disk.
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
		"FORGERUN_CLIENT_MAX_ACTIVE":     "1000000000", // a load may be that of one client
		"FORGERUN_MASTER_KEY":            base64.StdEncoding.EncodeToString(key),
		"FORGERUN_LOG_LEVEL":             "warn",
		"FORGERUN_LOG_FORMAT":            "json",
	}
	if o.Clock { // a test bed, and nothing that expires within the hours and days that jumps take away
		env["FORGERUN_TESTBED"] = "true"
		env["FORGERUN_API_KEY_TTL"], env["FORGERUN_RETENTION_JOBS"], env["FORGERUN_WEBHOOK_DISABLE_AFTER"] = "8760h", "8760h", "8760h"
	}
	maps.Copy(env, o.Env)
	env["FORGERUN_DATABASE_URL"], env["FORGERUN_REDIS_URL"] = databaseURL, redisURL
	return env
}

// list is the environment of a process: the caller's without its FORGERUN_ variables, and this one.
func (e environ) list() []string {
	all := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "FORGERUN_") })
	for name, value := range e {
		all = append(all, name+"="+value)
	}
	return all
}

// stopPatience is how long a process may take to end after SIGTERM: the grace
// for its jobs, and time to write to stores that may not answer.
func (e environ) stopPatience() time.Duration {
	grace, _ := time.ParseDuration(e["FORGERUN_SHUTDOWN_GRACE"]) // the processes refuse a bad one
	return grace + 20*time.Second
}
