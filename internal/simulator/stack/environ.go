package stack

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// environ is the configuration of all processes, without the addresses that each of them listens on.
type environ map[string]string

// fixed are the variables that only the stack itself knows.
var fixed = []string{"FORGERUN_DATABASE_URL", "FORGERUN_REDIS_URL", "FORGERUN_HTTP_ADDR", "FORGERUN_ADMIN_ADDR"}

func checkVariable(name string) error {
	if !strings.HasPrefix(name, "FORGERUN_") {
		return fmt.Errorf("variable %s: only those that begin with FORGERUN_ can be set", name)
	}
	if slices.Contains(fixed, name) {
		return fmt.Errorf("variable %s cannot be set: the address is the simulator's own", name)
	}
	return nil
}

// newEnviron sets short leases and backoffs, so that faults heal within seconds, and a log level at which a long run
// does not fill the disk.
func newEnviron(o Options, databaseURL, redisURL string) environ {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	env := environ{
		"FORGERUN_TIME_SCALE":            fmt.Sprintf("%g", o.TimeScale),
		"FORGERUN_WORKER_CONCURRENCY":    fmt.Sprint(o.Concurrency),
		"FORGERUN_LEASE_TIMEOUT":         o.Lease.String(),
		"FORGERUN_HEARTBEAT_INTERVAL":    min(500*time.Millisecond, o.Lease/3).String(),
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
		"FORGERUN_CLIENT_MAX_QUEUED":     "1000000000",
		"FORGERUN_MASTER_KEY":            base64.StdEncoding.EncodeToString(key),
		"FORGERUN_LOG_LEVEL":             "warn",
		"FORGERUN_LOG_FORMAT":            "json",
	}
	maps.Copy(env, o.withClockEnviron())
	env["FORGERUN_DATABASE_URL"], env["FORGERUN_REDIS_URL"] = databaseURL, redisURL
	return env
}

// setPublicURL says where the API is found, unless the options do.
func (e environ) setPublicURL(o Options, url string) {
	if o.Env["FORGERUN_PUBLIC_URL"] == "" {
		e["FORGERUN_PUBLIC_URL"] = url
	}
}

// list is the environment of one process: the caller's without its FORGERUN_ variables, this one and the process's
// own.
func (e environ) list(own ...string) []string {
	all := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "FORGERUN_") })
	for name, value := range e {
		all = append(all, name+"="+value)
	}
	return append(all, own...)
}

// stopPatience is how long a process may take to end after SIGTERM: the grace
// for its jobs, and time to write to stores that may not answer.
func (e environ) stopPatience() time.Duration {
	grace, err := time.ParseDuration(e["FORGERUN_SHUTDOWN_GRACE"])
	if err != nil { // the processes refuse it
		grace = 0
	}
	return grace + 20*time.Second
}
