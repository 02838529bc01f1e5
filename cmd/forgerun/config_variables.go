package main

import (
	"time"

	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/redisconn"
)

type variable struct {
	name     string
	fallback string // value when unset
	dev      string // default of `forgerun dev`; "" means `fallback`
	help     string
	secret   bool
	parse    func(string) error
}

const day = 24 * time.Hour

func (c *Config) variables() []variable {
	var all []variable
	for _, g := range c.groups() {
		all = append(all, g.variables...)
	}
	return all
}

func (c *Config) serviceVariables() []variable {
	return []variable{
		{name: "FORGERUN_DATABASE_URL", help: "URL of Postgres; dev starts its own if unset", secret: true,
			parse: storeURL(&c.DatabaseURL, "an address of Postgres, such as postgres://user:password@host:5432/forgerun", repo.CheckURL)},
		{name: "FORGERUN_REDIS_URL", secret: true,
			help:  "URL of Redis (redis, rediss, unix, redis-sentinel or redis-cluster); dev starts its own if unset",
			parse: storeURL(&c.RedisURL, "an address of Redis, such as redis://:password@host:6379/0", redisconn.CheckURL)},
		{name: "FORGERUN_HTTP_ADDR", fallback: "127.0.0.1:8080", help: "address of the API; port 0: any free port",
			parse: address(&c.HTTPAddr)},
		{name: "FORGERUN_ADMIN_ADDR", dev: "127.0.0.1:8081",
			help:  "address of the admin listener (metrics, health, console); unset: 127.0.0.1, port 8081 (api), 8082 (worker) or 8083 (deliverer)",
			parse: address(&c.AdminAddr)},
		{name: "FORGERUN_PUBLIC_URL",
			help: "base URL of links in responses and deliveries; required by deliverer", parse: publicURL(&c.PublicURL)},
		{name: "FORGERUN_ADMIN_TOKEN", secret: true, parse: tokens(&c.AdminToken),
			help: "operator's token, or several: ann:token,bob:token; each at least 16 characters; unset: admin listener on loopback only"},
		{name: "FORGERUN_ADMIN_READ_TOKEN", help: "like FORGERUN_ADMIN_TOKEN, for read-only operators",
			secret: true, parse: tokens(&c.AdminReadToken)},
		{name: "FORGERUN_MASK_PARAMS", fallback: "*password*,*secret*,*token*,*authorization*",
			help:  "names of members, headers and URL parameters to hide from operators; none: show all",
			parse: masked(&c.MaskParams)},
		{name: "FORGERUN_TRACE_URL", help: "URL of a trace, with {trace_id} in it, for the console's links",
			secret: true, parse: traceURL(&c.TraceURL)},
		{name: "FORGERUN_OPEN_REGISTRATION", fallback: "false", dev: "true", help: "allow POST /v1/clients without credentials",
			parse: boolean(&c.OpenRegistration)},
		{name: "FORGERUN_DATA_DIR", fallback: ".forgerun", help: "folder for the data of dev", parse: text(&c.DataDir)},
		{name: "FORGERUN_LOG_LEVEL", fallback: "info", help: "debug, info, warn or error", parse: level(&c.LogLevel)},
		{name: "FORGERUN_LOG_FORMAT", fallback: "json", dev: "short",
			help:  "json, text, or short: one line for each ended job and warning",
			parse: oneOf(&c.LogFormat, "json", "text", shortFormat)},
		{name: "FORGERUN_WORKER_CONCURRENCY", fallback: "1", dev: "100", help: "concurrent jobs in a worker process",
			parse: integer(&c.WorkerConcurrency, 1, 100_000)},
		{name: "FORGERUN_TASK_CHECK_INTERVAL", fallback: "40ms", help: "how often an idle worker or deliverer asks Redis for tasks",
			parse: duration(&c.TaskCheckInterval, time.Millisecond, 5*time.Second)},
		{name: "FORGERUN_DELAYED_TASK_CHECK_INTERVAL", fallback: "250ms",
			help:  "how often Redis is checked for delayed tasks that are due",
			parse: duration(&c.DelayedTaskCheckInterval, 10*time.Millisecond, 5*time.Second)},
		{name: "FORGERUN_TIME_SCALE", fallback: "1", help: "multiplies durations of jobs and FORGERUN_MAX_RUNTIME; 0: jobs take no time",
			parse: decimal(&c.TimeScale, 0, 1000)},
		{name: "FORGERUN_MAX_RUNTIME", fallback: "120s", help: "time limit of one attempt",
			parse: duration(&c.MaxRuntime, time.Second, day)},
		{name: "FORGERUN_LEASE_TIMEOUT", fallback: "30s", help: "a worker without a heartbeat for this long counts as dead",
			parse: duration(&c.LeaseTimeout, time.Second, time.Hour)},
		{name: "FORGERUN_SHUTDOWN_GRACE", fallback: "30s", help: "how long running jobs may continue after SIGTERM",
			parse: duration(&c.ShutdownGrace, 0, time.Hour)},
		{name: "FORGERUN_MAX_RETRIES", fallback: "3", help: "maximum number of retries of a job",
			parse: integer(&c.MaxRetries, 0, 100)},
		{name: "FORGERUN_RETRY_BACKOFF_BASE", fallback: "1s",
			help: "wait before the first retry, then doubled, with full jitter", parse: duration(&c.Backoff.Base, 0, day)},
		{name: "FORGERUN_RETRY_BACKOFF_MAX", fallback: "60s", help: "longest wait before a retry", parse: duration(&c.Backoff.Max, 0, day)},
	}
}

func (c *Config) limitVariables() []variable {
	return []variable{
		{name: "FORGERUN_RATE_LIMIT_PER_MINUTE", fallback: "6000", dev: "600000",
			help:  "maximum requests of one client per minute, over all processes",
			parse: integer(&c.RateLimitPerMinute, 1, 1_000_000_000)},
		{name: "FORGERUN_DAILY_QUOTA", fallback: "0", help: "maximum requests of one client per day (UTC); 0: no quota",
			parse: integer(&c.DailyQuota, 0, 1_000_000_000)},
		{name: "FORGERUN_MAX_ACTIVE_JOBS", fallback: "1000000", help: "maximum unfinished jobs of all clients",
			parse: integer(&c.MaxActiveJobs, 1, 1_000_000_000)},
		{name: "FORGERUN_MAX_QUEUE_SIZE", fallback: "1000000", help: "maximum QUEUED jobs of all clients",
			parse: integer(&c.MaxQueueSize, 1, 1_000_000_000)},
		{name: "FORGERUN_CLIENT_MAX_ACTIVE",
			help: "maximum unfinished jobs of one client; unset: a quarter of FORGERUN_MAX_ACTIVE_JOBS. The client has the " +
				"same share of FORGERUN_MAX_QUEUE_SIZE",
			parse: optional(integer(&c.ClientMaxActive, 1, 1_000_000_000))},
		{name: "FORGERUN_CLIENT_MAX_RUNNING", fallback: "0",
			help:  "maximum ASSIGNED and RUNNING jobs of one client, over all workers; 0: no limit",
			parse: integer(&c.ClientMaxRunning, 0, 1_000_000)},
		{name: "FORGERUN_MAX_SCHEDULE_AHEAD", fallback: "8784h", help: "how far in the future execution_at may be",
			parse: duration(&c.MaxScheduleAhead, time.Minute, 200*365*day)},
		{name: "FORGERUN_CLIENT_MAX_SCHEDULES", fallback: "100", help: "maximum schedules of one client",
			parse: integer(&c.ClientMaxSchedules, 0, 100_000)},
		{name: "FORGERUN_CLIENT_DAILY_STORAGE", fallback: "65536",
			help:  "maximum MiB that jobs of one client store per day (UTC); 0: no limit",
			parse: integer(&c.ClientDailyStorage, 0, 1<<40/job.WeightUnit)},
		{name: "FORGERUN_JOB_TYPES", fallback: "all", help: "allowed job types, separated by commas", parse: subset(&c.JobTypes, job.Types)},
		{name: "FORGERUN_WORK_KINDS", fallback: "all", help: "allowed work kinds, separated by commas", parse: subset(&c.WorkKinds, job.Kinds())},
		{name: "FORGERUN_TESTBED", fallback: "false", dev: "true",
			help:  "enable the test bed for clients: CUSTOM jobs, faults, and a movable clock",
			parse: boolean(&c.TestBed)},
		{name: "FORGERUN_RANDOM_FAIL_PROBABILITY", fallback: "0.2",
			help:  "probability that the service picks a failing work kind if the client names none",
			parse: decimal(&c.FailProbability, 0, 1)},
		{name: "FORGERUN_API_KEY_TTL", fallback: "2160h", help: "lifetime of an " +
			"API key", parse: duration(&c.APIKeyTTL, time.Second, 100*365*day)},
		{name: "FORGERUN_RETENTION_JOBS", fallback: "720h", help: "how long finished jobs are kept",
			parse: duration(&c.RetentionJobs, time.Second, 100*365*day)},
	}
}

func (c *Config) deliveryVariables() []variable {
	return []variable{
		{name: "FORGERUN_MASTER_KEY",
			help:   "key that encrypts webhook secrets and signing keys: 32 bytes in base64; dev makes its own if unset",
			secret: true, parse: key(&c.MasterKey)},
		{name: "FORGERUN_WEBHOOK_TIMEOUT", fallback: "10s", help: "time limit of one delivery attempt",
			parse: duration(&c.WebhookTimeout, 100*time.Millisecond, 5*time.Minute)},
		{name: "FORGERUN_WEBHOOK_MAX_RETRIES", fallback: "8", help: "maximum number of retries of a delivery",
			parse: integer(&c.WebhookMaxRetries, 0, 100)},
		{name: "FORGERUN_WEBHOOK_BACKOFF_BASE", fallback: "5s",
			help:  "wait before the first retry of a delivery, then doubled, with jitter",
			parse: duration(&c.WebhookBackoff.Base, time.Millisecond, day)},
		{name: "FORGERUN_WEBHOOK_BACKOFF_MAX", fallback: "1h", help: "longest wait before a retry of a delivery",
			parse: duration(&c.WebhookBackoff.Max, time.Millisecond, 7*day)},
		{name: "FORGERUN_WEBHOOK_CONCURRENCY", fallback: "50",
			help: "concurrent deliveries in a deliverer; one receiver gets at most a fifth", parse: integer(&c.WebhookConcurrency, 1, 10_000)},
		{name: "FORGERUN_WEBHOOK_ALLOW_PRIVATE", fallback: "false", dev: "true",
			help: "allow webhooks at private and loopback addresses", parse: boolean(&c.WebhookAllowPrivate)},
		{name: "FORGERUN_WEBHOOK_CHALLENGE", fallback: "false",
			help: "ask receivers for consent by OPTIONS before a webhook is registered", parse: boolean(&c.WebhookChallenge)},
		{name: "FORGERUN_WEBHOOK_CLIENT_RATE", fallback: "6000", dev: "600000",
			help:  "maximum delivery attempts to one client's receivers per minute; further ones wait; 0: no limit",
			parse: integer(&c.WebhookClientRate, 0, 1_000_000_000)},
		{name: "FORGERUN_WEBHOOK_DISABLE_AFTER", fallback: "10m", dev: "8760h",
			help:  "disable a webhook after 20 failures in a row over at least this time",
			parse: duration(&c.WebhookDisableAfter, 0, 365*day)},
		{name: "FORGERUN_OUTCOME_STREAM",
			help:  "Redis stream for the outcome document of each attempt; unset: none",
			parse: text(&c.OutcomeStream)},
		{name: "FORGERUN_DB_TIMEOUT", fallback: "5s",
			help:  "time limit of a database statement (otherwise 503); twice this for a request (otherwise 504)",
			parse: duration(&c.DBTimeout, 50*time.Millisecond, time.Hour)},
	}
}

func (c *Config) networkVariables() []variable {
	return []variable{
		{name: "FORGERUN_TRUSTED_PROXIES",
			help:  "networks of proxies whose X-Forwarded-For is trusted, such as 10.0.0.0/8,192.0.2.7",
			parse: networks(&c.Network.TrustedProxies)},
		{name: "FORGERUN_CORS_ORIGINS", dev: cors.Loopback,
			help:  "origins of web pages that may call the API; loopback: this machine; *: all",
			parse: origins(&c.Network.Origins)},
	}
}

func (c *Config) tracingVariables() []variable {
	return []variable{
		{name: "OTEL_EXPORTER_OTLP_ENDPOINT", help: "where traces are sent, such as http://127.0.0.1:4318; unset: no traces",
			secret: true, parse: endpoint(&c.Tracing.Endpoint)},
		{name: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", help: "like OTEL_EXPORTER_OTLP_ENDPOINT, but with the full path; takes precedence",
			secret: true, parse: endpoint(&c.Tracing.TracesEndpoint)},
		{name: "OTEL_EXPORTER_OTLP_PROTOCOL", fallback: "http/protobuf", help: "http/protobuf or grpc",
			parse: oneOf(&c.Tracing.Protocol, protocols...)},
		{name: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", help: "like OTEL_EXPORTER_OTLP_PROTOCOL; takes precedence",
			parse: optional(oneOf(&c.Tracing.TracesProtocol, protocols...))},
		{name: "OTEL_EXPORTER_OTLP_HEADERS", help: "headers sent with traces, such as api-key=...", secret: true, parse: unread},
		{name: "OTEL_TRACES_EXPORTER", fallback: "otlp", help: "otlp or none",
			parse: oneOf(&c.Tracing.Exporter, "otlp", "none")},
		{name: "OTEL_TRACES_SAMPLER", fallback: "parentbased_always_on",
			help: "always_on, always_off or traceidratio; with prefix parentbased_, the client's traceparent decides",
			parse: oneOf(&c.Tracing.Sampler, "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
				"parentbased_traceidratio")},
		{name: "OTEL_TRACES_SAMPLER_ARG", fallback: "1", help: "with traceidratio: share of requests to trace",
			parse: decimal(&c.Tracing.Ratio, 0, 1)},
		{name: "OTEL_SERVICE_NAME", fallback: "forgerun", help: "name of the service in traces", parse: unread},
		{name: "OTEL_RESOURCE_ATTRIBUTES", help: "further attributes of the process: key=value pairs, separated by commas",
			secret: true, parse: pairs},
		{name: "OTEL_SDK_DISABLED", fallback: "false", help: "true disables traces", parse: boolean(&c.Tracing.Disabled)},
	}
}
