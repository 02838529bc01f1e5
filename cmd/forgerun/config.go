package main

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
)

// Config is the configuration of a process, read once from the environment.
type Config struct {
	DatabaseURL, RedisURL       string
	HTTPAddr, AdminAddr         string
	AdminAddrUnset              bool // true if AdminAddr is the default of the role
	PublicURL                   string
	AdminToken                  string // operators' tokens; AdminReadToken has the same format, see operators.Parse
	AdminReadToken              string
	OwnAdminToken               bool // true if dev created AdminToken
	MaskParams                  operator.Mask
	TraceURL                    string // URL of a trace, with {trace_id} as placeholder; "" if unset
	OpenRegistration            bool
	DataDir                     string
	StoreDirs                   []string // folders of dev's own Postgres and Redis
	FetchFrom                   string   // where dev downloads Postgres; "": no download
	LogLevel                    slog.Level
	LogFormat                   string
	Screen                      term.Style // capabilities of standard output and standard error
	LogFile                     io.Writer  // gets all log lines; nil: no file
	Network                     Network
	Tracing                     Tracing
	WorkerConcurrency           int
	TaskCheckInterval           time.Duration
	DelayedTaskCheckInterval    time.Duration
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
	ClientDailyStorage          int // MiB
	JobTypes                    []job.Type
	WorkKinds                   []job.Kind
	TestBed                     bool
	FailProbability             float64
	APIKeyTTL                   time.Duration
	RetentionJobs               time.Duration
	DBTimeout                   time.Duration

	MasterKey           []byte // nil if unset
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

// Network says which proxies and web pages are trusted.
type Network struct {
	TrustedProxies conn.Proxies
	Origins        cors.Origins
}

// Tracing contains the OpenTelemetry variables that LoadConfig checks. OpenTelemetry's library reads all its variables itself.
type Tracing struct {
	Endpoint, TracesEndpoint string
	Protocol, TracesProtocol string
	Exporter, Sampler        string
	Ratio                    float64
	Disabled                 bool
}

var protocols = []string{"http/protobuf", "grpc"}

func (t Tracing) enabled() bool {
	return !t.Disabled && t.Exporter != "none" && (t.Endpoint != "" || t.TracesEndpoint != "")
}

func (t Tracing) protocol() string { return cmp.Or(t.TracesProtocol, t.Protocol) }

// LoadConfig reads the environment. Role "dev" has its own defaults. The error names every bad variable, its value, and the allowed
// values.
func LoadConfig(role string, getenv func(string) string) (Config, error) {
	var c Config
	var wrong []string
	for _, v := range c.variables() {
		value, _ := v.effective(role, getenv)
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

var adminAddrs = map[string]string{"api": "127.0.0.1:8081", "worker": "127.0.0.1:8082", "deliverer": "127.0.0.1:8083"}

// contradictions returns a text for each missing or contradicting value. It also sets the defaults that depend on other values.
func (c *Config) contradictions(role string) []string {
	var wrong []string
	add := func(condition bool, sentence string) {
		if condition {
			wrong = append(wrong, sentence)
		}
	}
	c.ClientMaxActive = cmp.Or(c.ClientMaxActive, max(1, c.MaxActiveJobs/4))
	server := role == "api" || role == "worker" || role == "deliverer"
	c.AdminAddrUnset = c.AdminAddr == ""
	c.AdminAddr = cmp.Or(c.AdminAddr, adminAddrs[role])
	add((server || role == "migrate" || role == "rotate-signing-key") && c.DatabaseURL == "",
		"FORGERUN_DATABASE_URL is required, for example postgres://user:password@host:5432/forgerun")
	add(server && c.RedisURL == "", "FORGERUN_REDIS_URL is required, for example redis://host:6379/0")
	add(c.Backoff.Max < c.Backoff.Base, "FORGERUN_RETRY_BACKOFF_MAX must not be less than FORGERUN_RETRY_BACKOFF_BASE")
	add(c.WebhookBackoff.Max < c.WebhookBackoff.Base, "FORGERUN_WEBHOOK_BACKOFF_MAX must not be less than FORGERUN_WEBHOOK_BACKOFF_BASE")
	add((role == "deliverer" || role == "rotate-signing-key") && c.MasterKey == nil,
		"FORGERUN_MASTER_KEY is required; it must be the same for all processes. To generate one: openssl rand -base64 32")
	add((role == "deliverer" || (role == "worker" && c.OutcomeStream != "")) && c.PublicURL == "",
		"FORGERUN_PUBLIC_URL is required, for example https://forgerun.example.com: links in deliveries and outcomes begin with it")
	add(role == "api" && c.WebhookChallenge && c.PublicURL == "",
		"FORGERUN_PUBLIC_URL is required with FORGERUN_WEBHOOK_CHALLENGE: requests for consent tell receivers its host")
	if _, err := operators.Parse(c.AdminToken, c.AdminReadToken); err != nil {
		add(true, "FORGERUN_ADMIN_TOKEN and FORGERUN_ADMIN_READ_TOKEN: "+err.Error())
	}
	add(role != "dev" && c.Operators().None() && c.AdminAddr != "" && !onLoopback(c.AdminAddr),
		"FORGERUN_ADMIN_ADDR is not on loopback: set FORGERUN_ADMIN_TOKEN to protect it")
	add(c.Network.Origins.Any() && c.OpenRegistration,
		"FORGERUN_CORS_ORIGINS=* cannot be combined with FORGERUN_OPEN_REGISTRATION: any web page in a browser that reaches this service "+
			"could create clients and run jobs. List the allowed origins")
	return wrong
}

// Operators returns the operators who may use the admin listener.
func (c Config) Operators() operators.Tokens {
	tokens, _ := operators.Parse(c.AdminToken, c.AdminReadToken) // cannot fail: LoadConfig has refused invalid tokens
	return tokens
}

// ExecutionLimit returns how long an attempt may run: MaxRuntime multiplied by the time scale, but at least a second.
func (c Config) ExecutionLimit() time.Duration {
	return max(time.Second, time.Duration(float64(c.MaxRuntime)*c.TimeScale))
}

// heartbeat returns the interval at which a worker renews its lease. The lease lasts six heartbeats.
func (c Config) heartbeat() time.Duration { return c.LeaseTimeout / 6 }

func (c Config) requestTimeout() time.Duration { return 2 * c.DBTimeout }
