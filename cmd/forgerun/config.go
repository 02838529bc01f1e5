package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
)

// Config is everything that can be configured. It is read once, from the
// environment alone.
type Config struct {
	DatabaseURL, RedisURL       string
	HTTPAddr, AdminAddr         string
	PublicURL                   string
	AdminToken                  string // of operators, and of those who only read: see operators.Parse
	AdminReadToken              string
	OwnAdminToken               bool // dev made it
	MaskParams                  operator.Mask
	TraceURL                    string // "" or with {trace_id}
	OpenRegistration            bool
	DataDir                     string
	FetchFrom                   string // of dev: where a copy of Postgres is fetched from; "" for not at all
	LogLevel                    slog.Level
	LogFormat                   string
	Screen                      term.Style // what standard output and standard error can show
	Keys                        *os.File   // of dev: the terminal whose keys it takes; nil for none
	Network                     Network
	Tracing                     Tracing
	WorkerConcurrency           int
	TimeScale                   float64
	MaxRuntime                  time.Duration
	LeaseTimeout                time.Duration
	ShutdownGrace               time.Duration
	MaxRetries                  int
	Backoff                     job.Backoff
	RateLimitPerMinute          int
	DailyQuota                  int
	MaxActiveJobs, MaxQueueSize int
	ClientMaxActive             int
	ClientMaxRunning            int
	MaxScheduleAhead            time.Duration
	ClientMaxSchedules          int
	DispatchWindow              int
	JobTypes                    []job.Type
	WorkKinds                   []job.Kind
	TestBed                     bool
	FailProbability             float64
	APIKeyTTL                   time.Duration
	RetentionJobs               time.Duration
	DBTimeout                   time.Duration

	MasterKey           []byte // nil if there is none
	WebhookTimeout      time.Duration
	WebhookMaxRetries   int
	WebhookBackoff      job.Backoff
	WebhookConcurrency  int
	WebhookAllowPrivate bool
	WebhookChallenge    bool
	WebhookClientRate   int
	WebhookDisableAfter time.Duration
	OutcomeStream       string
}

// variable is one environment variable.
type variable struct {
	name     string
	fallback string // value when unset
	dev      string // the same for `forgerun dev`; "" if no different
	help     string
	secret   bool
	parse    func(string) error
}

// shown is a value as others may read it. It is masked if it is a secret, and
// also if it may have a password where none is expected, as in
// http://user:password@host.
func (v variable) shown(value string) string {
	if value != "" && (v.secret || strings.Contains(value, "@")) {
		return mask
	}
	return value
}

const day = 24 * time.Hour

// variables ties each environment variable to its field.
func (c *Config) variables() []variable {
	var all []variable
	for _, g := range c.groups() {
		all = append(all, g.variables...)
	}
	return all
}

// serviceVariables are those of the stores, the listeners and the workers.
func (c *Config) serviceVariables() []variable {
	return []variable{
		{name: "FORGERUN_DATABASE_URL", help: "Postgres; dev runs its own if unset", secret: true, parse: text(&c.DatabaseURL)},
		{name: "FORGERUN_REDIS_URL", help: "redis, rediss, unix, redis-sentinel or redis-cluster; dev runs its own if unset", secret: true,
			parse: text(&c.RedisURL)},
		{name: "FORGERUN_HTTP_ADDR", fallback: "127.0.0.1:8080", help: "address of the API; port 0 takes a free one",
			parse: address(&c.HTTPAddr)},
		{name: "FORGERUN_ADMIN_ADDR", dev: "127.0.0.1:8081",
			help:  "address of metrics, health and dashboards; unset: 127.0.0.1:8081 for api, none for worker and webhooks",
			parse: address(&c.AdminAddr)},
		{name: "FORGERUN_PUBLIC_URL",
			help: "base of links and problem types, which deliveries carry too; unset: from the API's address. Required by webhooks, " +
				"and by worker with an outcome stream", parse: publicURL(&c.PublicURL)},
		{name: "FORGERUN_ADMIN_TOKEN", help: "the operator's token, 16 characters at least, or several, as in ann:token,bob:token; " +
			"unset: the admin address must be on loopback", secret: true, parse: tokens(&c.AdminToken)},
		{name: "FORGERUN_ADMIN_READ_TOKEN", help: "the same for operators who may look at the admin address' pages and change nothing",
			secret: true, parse: tokens(&c.AdminReadToken)},
		{name: "FORGERUN_MASK_PARAMS", fallback: "*password*,*secret*,*token*",
			help: "members of params, definitions, event data and answers of receivers whose values operators are not shown, " +
				"in either case; none: all are shown",
			parse: masked(&c.MaskParams)},
		{name: "FORGERUN_TRACE_URL", help: "where a trace is shown, with {trace_id} in it; the console links to it",
			parse: traceURL(&c.TraceURL)},
		{name: "FORGERUN_OPEN_REGISTRATION", fallback: "false", dev: "true", help: "whether anybody may create a client",
			parse: boolean(&c.OpenRegistration)},
		{name: "FORGERUN_DATA_DIR", fallback: ".forgerun", help: "folder of dev's own stores", parse: text(&c.DataDir)},
		{name: "FORGERUN_LOG_LEVEL", fallback: "info", help: "debug, info, warn or error", parse: level(&c.LogLevel)},
		{name: "FORGERUN_LOG_FORMAT", fallback: "json", dev: "short",
			help:  "json, text, or short: a line for each job that ends and for each warning",
			parse: oneOf(&c.LogFormat, "json", "text", shortFormat)},
		{name: "FORGERUN_WORKER_CONCURRENCY", fallback: "1", dev: "100", help: "jobs at once in a worker process",
			parse: integer(&c.WorkerConcurrency, 1, 100_000)},
		{name: "FORGERUN_TIME_SCALE", fallback: "1", help: "multiplies the jobs' durations and the execution limit; 0: jobs take no time",
			parse: decimal(&c.TimeScale, 0, 1000)},
		{name: "FORGERUN_MAX_RUNTIME", fallback: "120s", help: "execution limit of a job", parse: duration(&c.MaxRuntime, time.Second, day)},
		{name: "FORGERUN_LEASE_TIMEOUT", fallback: "30s", help: "a worker without a heartbeat for so long is dead; there are six in that time",
			parse: duration(&c.LeaseTimeout, time.Second, time.Hour)},
		{name: "FORGERUN_SHUTDOWN_GRACE", fallback: "30s", help: "how long running jobs may go on after SIGTERM",
			parse: duration(&c.ShutdownGrace, 0, time.Hour)},
		{name: "FORGERUN_MAX_RETRIES", fallback: "3", help: "attempts after the first one", parse: integer(&c.MaxRetries, 0, 100)},
		{name: "FORGERUN_RETRY_BACKOFF_BASE", fallback: "1s",
			help: "wait before the first retry, doubled for each further one, with full jitter", parse: duration(&c.Backoff.Base, 0, day)},
		{name: "FORGERUN_RETRY_BACKOFF_MAX", fallback: "60s", help: "longest wait before a retry", parse: duration(&c.Backoff.Max, 0, day)},
	}
}

// limitVariables are those of limits and the catalogue.
func (c *Config) limitVariables() []variable {
	return []variable{
		{name: "FORGERUN_RATE_LIMIT_PER_MINUTE", fallback: "6000", dev: "600000", help: "requests of one client per minute, over all processes",
			parse: integer(&c.RateLimitPerMinute, 1, 1_000_000_000)},
		{name: "FORGERUN_DAILY_QUOTA", fallback: "0", help: "requests of one client per day (UTC); 0: no quota",
			parse: integer(&c.DailyQuota, 0, 1_000_000_000)},
		{name: "FORGERUN_MAX_ACTIVE_JOBS", fallback: "1000000", help: "jobs that are not final, in all",
			parse: integer(&c.MaxActiveJobs, 1, 1_000_000_000)},
		{name: "FORGERUN_MAX_QUEUE_SIZE", fallback: "1000000", help: "jobs in QUEUED, in all", parse: integer(&c.MaxQueueSize, 1, 1_000_000_000)},
		{name: "FORGERUN_CLIENT_MAX_ACTIVE",
			help:  "the active jobs of one client, and of FORGERUN_MAX_QUEUE_SIZE the same part; unset: a quarter of FORGERUN_MAX_ACTIVE_JOBS",
			parse: optional(integer(&c.ClientMaxActive, 1, 1_000_000_000))},
		{name: "FORGERUN_CLIENT_MAX_RUNNING", fallback: "0",
			help:  "the jobs of one client that are ASSIGNED or RUNNING, over all workers; the same for all processes; 0: any number",
			parse: integer(&c.ClientMaxRunning, 0, 1_000_000)},
		{name: "FORGERUN_MAX_SCHEDULE_AHEAD", fallback: "8784h", help: "how far in the future an execution_at may lie: 400",
			parse: duration(&c.MaxScheduleAhead, time.Minute, 200*365*day)},
		{name: "FORGERUN_CLIENT_MAX_SCHEDULES", fallback: "100", help: "schedules of one client; those that are there stay: 409",
			parse: integer(&c.ClientMaxSchedules, 0, 100_000)},
		{name: "FORGERUN_DISPATCH_WINDOW", fallback: "50000",
			help:  "about how many jobs that come next live in Redis, and half as many whose time will come; the others wait in Postgres alone",
			parse: integer(&c.DispatchWindow, 1, 10_000_000)},
		{name: "FORGERUN_JOB_TYPES", fallback: "all", help: "allowed job types, separated by commas", parse: subset(&c.JobTypes, job.Types)},
		{name: "FORGERUN_WORK_KINDS", fallback: "all", help: "allowed work kinds, separated by commas", parse: subset(&c.WorkKinds, job.Kinds())},
		{name: "FORGERUN_TESTBED", fallback: "false", dev: "true",
			help: "the test bed for clients: work kind CUSTOM, faults that they ask for in their own traffic, and a clock that they can " +
				"move; the same for all processes",
			parse: boolean(&c.TestBed)},
		{name: "FORGERUN_RANDOM_FAIL_PROBABILITY", fallback: "0.2", help: "chance of a failing kind when the client names none",
			parse: decimal(&c.FailProbability, 0, 1)},
	}
}

// deliveryVariables are those of webhooks, the outcome stream and time limits.
func (c *Config) deliveryVariables() []variable {
	return []variable{
		{name: "FORGERUN_MASTER_KEY",
			help:   "encrypts webhook secrets and signing keys: 32 bytes in base64, as of 'openssl rand -base64 32'; dev makes its own if unset",
			secret: true, parse: key(&c.MasterKey)},
		{name: "FORGERUN_WEBHOOK_TIMEOUT", fallback: "10s", help: "limit of one delivery attempt",
			parse: duration(&c.WebhookTimeout, 100*time.Millisecond, 5*time.Minute)},
		{name: "FORGERUN_WEBHOOK_MAX_RETRIES", fallback: "8", help: "delivery attempts after the first one",
			parse: integer(&c.WebhookMaxRetries, 0, 100)},
		{name: "FORGERUN_WEBHOOK_BACKOFF_BASE", fallback: "5s",
			help:  "wait before the first retry of a delivery, doubled for each further one, with jitter",
			parse: duration(&c.WebhookBackoff.Base, time.Millisecond, day)},
		{name: "FORGERUN_WEBHOOK_BACKOFF_MAX", fallback: "1h", help: "longest wait before a retry of a delivery",
			parse: duration(&c.WebhookBackoff.Max, time.Millisecond, 7*day)},
		{name: "FORGERUN_WEBHOOK_CONCURRENCY", fallback: "50",
			help: "deliveries at once in a webhooks process; one endpoint gets at most a fifth", parse: integer(&c.WebhookConcurrency, 1, 10_000)},
		{name: "FORGERUN_WEBHOOK_ALLOW_PRIVATE", fallback: "false", dev: "true",
			help: "whether webhooks may have private and loopback addresses", parse: boolean(&c.WebhookAllowPrivate)},
		{name: "FORGERUN_WEBHOOK_CHALLENGE", fallback: "false",
			help: "whether receivers must say, asked with OPTIONS, that they want events before a webhook is registered, and callbacks need " +
				"such a webhook; for api and webhooks alike, with FORGERUN_PUBLIC_URL", parse: boolean(&c.WebhookChallenge)},
		{name: "FORGERUN_WEBHOOK_CLIENT_RATE", fallback: "0",
			help:  "delivery attempts to one client's receivers per minute, over all processes; what is beyond waits; 0: no limit",
			parse: integer(&c.WebhookClientRate, 0, 1_000_000_000)},
		{name: "FORGERUN_WEBHOOK_DISABLE_AFTER", fallback: "10m", help: "a webhook is disabled after 20 failures in a row that span so long",
			parse: duration(&c.WebhookDisableAfter, 0, 365*day)},
		{name: "FORGERUN_OUTCOME_STREAM",
			help:  "Redis stream that gets the outcome document of each attempt; unset: none. The same for all processes",
			parse: text(&c.OutcomeStream)},
		{name: "FORGERUN_DB_TIMEOUT", fallback: "5s",
			help:  "limit of one statement: 503; of a request, waiting on request aside, twice as long: 504",
			parse: duration(&c.DBTimeout, 50*time.Millisecond, time.Hour)},
	}
}

// LoadConfig reads the environment; role "dev" has friendlier defaults. The
// error names every bad variable, its value, and what is allowed.
func LoadConfig(role string, getenv func(string) string) (Config, error) {
	var c Config
	var wrong []string
	for _, v := range c.variables() {
		value := getenv(v.name)
		if value == "" {
			value = v.fallback
			if role == "dev" && v.dev != "" {
				value = v.dev
			}
		}
		if err := v.parse(value); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s=%q: %v", v.name, v.shown(value), err))
		}
	}
	if len(wrong) == 0 {
		wrong = c.contradictions(role)
	}
	if len(wrong) > 0 {
		return c, fmt.Errorf("bad configuration:\n  %s", strings.Join(wrong, "\n  "))
	}
	return c, nil
}

// contradictions finds values that do not go together.
func (c *Config) contradictions(role string) []string {
	var wrong []string
	add := func(condition bool, sentence string) {
		if condition {
			wrong = append(wrong, sentence)
		}
	}
	c.ClientMaxActive = cmp.Or(c.ClientMaxActive, max(1, c.MaxActiveJobs/4))
	server := role == "api" || role == "worker" || role == "webhooks"
	if c.AdminAddr == "" && role == "api" {
		c.AdminAddr = "127.0.0.1:8081"
	}
	add((server || role == "migrate" || role == "rotate-signing-key") && c.DatabaseURL == "",
		"FORGERUN_DATABASE_URL is required, such as postgres://user:password@host:5432/forgerun")
	add(server && c.RedisURL == "", "FORGERUN_REDIS_URL is required, such as redis://host:6379/0")
	add(c.Backoff.Max < c.Backoff.Base, "FORGERUN_RETRY_BACKOFF_MAX must not be less than FORGERUN_RETRY_BACKOFF_BASE")
	add(c.WebhookBackoff.Max < c.WebhookBackoff.Base, "FORGERUN_WEBHOOK_BACKOFF_MAX must not be less than FORGERUN_WEBHOOK_BACKOFF_BASE")
	add((role == "webhooks" || role == "rotate-signing-key") && c.MasterKey == nil,
		"FORGERUN_MASTER_KEY is required; it must be the same for all processes. To make one: openssl rand -base64 32")
	add((role == "webhooks" || (role == "worker" && c.OutcomeStream != "")) && c.PublicURL == "",
		"FORGERUN_PUBLIC_URL is required: what is sent has addresses of the API, such as https://forgerun.example.com")
	add(role == "api" && c.WebhookChallenge && c.PublicURL == "",
		"FORGERUN_PUBLIC_URL is required with FORGERUN_WEBHOOK_CHALLENGE: its host is the name under which receivers are asked")
	if _, err := operators.Parse(c.AdminToken, c.AdminReadToken); err != nil {
		add(true, "FORGERUN_ADMIN_TOKEN and FORGERUN_ADMIN_READ_TOKEN: "+err.Error())
	}
	add(role != "dev" && c.Operators().None() && c.AdminAddr != "" && !onLoopback(c.AdminAddr),
		"FORGERUN_ADMIN_ADDR is not on loopback: set FORGERUN_ADMIN_TOKEN to guard it")
	add(c.Network.Origins.Any() && c.OpenRegistration,
		"FORGERUN_CORS_ORIGINS=* does not go with FORGERUN_OPEN_REGISTRATION: every web page that somebody near this service opens "+
			"could create clients and run jobs. Name the origins")
	return wrong
}

// Operators are those who may use the admin listener.
func (c Config) Operators() operators.Tokens {
	tokens, _ := operators.Parse(c.AdminToken, c.AdminReadToken) // LoadConfig refused what is wrong
	return tokens
}

// ExecutionLimit is the execution limit under the time scale; it never goes
// below a second.
func (c Config) ExecutionLimit() time.Duration {
	return max(time.Second, time.Duration(float64(c.MaxRuntime)*c.TimeScale))
}

// heartbeat is the interval at which a worker renews its lease: a few may be late or lost.
func (c Config) heartbeat() time.Duration { return c.LeaseTimeout / 6 }

// requestTimeout is the limit of one request.
func (c Config) requestTimeout() time.Duration { return 2 * c.DBTimeout }
