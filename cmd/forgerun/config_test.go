package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
)

var required = env{"FORGERUN_DATABASE_URL": "postgres://localhost/none", "FORGERUN_REDIS_URL": "redis://localhost"}

func runWith(t *testing.T, environment env, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, func(name string) string { return environment[name] }, nil, &out, &err)
	return code, out.String(), err.String()
}

func TestBadVariableStopsTheStart(t *testing.T) {
	t.Parallel()
	bad := map[string][]string{
		"FORGERUN_HTTP_ADDR":    {"8080", "localhost", "1.2.3.4", "127.0.0.1:", ":http", ":-1", "[::1]:65536"},
		"FORGERUN_ADMIN_ADDR":   {"9", "0.0.0.0:9", ":9", "example.com:9", "127.0.0.1:99999"},
		"FORGERUN_PUBLIC_URL":   {"example.com", "ftp://x", "https://", "https://x?y", "https://x#y"},
		"FORGERUN_DATABASE_URL": {"jdbc:postgresql://host/x", "mysql://host/x", "hunter2"},
		"FORGERUN_REDIS_URL":    {"cache.example:6379", "http://cache.example:6379", "hunter2"},
		"FORGERUN_ADMIN_TOKEN": {
			"short", "ann:short", "0123456789abcdef,fedcba9876543210", "0123456789abcdef\n", "0123456789 abcdef",
		},
		"FORGERUN_ADMIN_READ_TOKEN":            {"short", "0123456789abcdef,"},
		"FORGERUN_MASK_PARAMS":                 {"[", "*a*,[b"},
		"FORGERUN_TRACE_URL":                   {"traces.test", "https://traces.test/trace", "javascript:{trace_id}"},
		"FORGERUN_WORKER_CONCURRENCY":          {"0", "-1", "many", "1.5"},
		"FORGERUN_TIME_SCALE":                  {"-1", "fast", "NaN", "Inf"},
		"FORGERUN_TASK_CHECK_INTERVAL":         {"0s", "10s"},
		"FORGERUN_DELAYED_TASK_CHECK_INTERVAL": {"1ms", "1m"},
		"FORGERUN_MAX_RUNTIME":                 {"0s", "120", "-1s"},
		"FORGERUN_LEASE_TIMEOUT":               {"0s", "1ms", "2h"},
		"FORGERUN_SHUTDOWN_GRACE":              {"-1s", "forever"},
		"FORGERUN_MAX_RETRIES":                 {"-1", "x"},
		"FORGERUN_RETRY_BACKOFF_BASE":          {"-1s", "2m"}, // longer than the default of RETRY_BACKOFF_MAX
		"FORGERUN_RETRY_BACKOFF_MAX":           {"-1s", "1ms"},
		"FORGERUN_RATE_LIMIT_PER_MINUTE":       {"0", "x"},
		"FORGERUN_DAILY_QUOTA":                 {"-1"},
		"FORGERUN_MAX_ACTIVE_JOBS":             {"0"},
		"FORGERUN_MAX_QUEUE_SIZE":              {"0"},
		"FORGERUN_CLIENT_MAX_ACTIVE":           {"0", "a quarter"},
		"FORGERUN_CLIENT_MAX_RUNNING":          {"-1", "1000001", "all"},
		"FORGERUN_MAX_SCHEDULE_AHEAD":          {"1s", "a year"},
		"FORGERUN_CLIENT_MAX_SCHEDULES":        {"-1", "100001", "many"},
		"FORGERUN_CLIENT_DAILY_STORAGE":        {"-1", "1GiB"},
		"FORGERUN_JOB_TYPES":                   {"NONE", "EXECUTE,"},
		"FORGERUN_WORK_KINDS":                  {"success_fast", "ALL"},
		"FORGERUN_RANDOM_FAIL_PROBABILITY":     {"-0.1", "1.1", "NaN"},
		"FORGERUN_API_KEY_TTL":                 {"0s", "90d"},
		"FORGERUN_RETENTION_JOBS":              {"0s"},
		"FORGERUN_MASTER_KEY":                  {"short", "AAAA", "!"},
		"FORGERUN_WEBHOOK_TIMEOUT":             {"0s", "1h"},
		"FORGERUN_WEBHOOK_MAX_RETRIES":         {"-1", "x"},
		"FORGERUN_WEBHOOK_BACKOFF_BASE":        {"0s", "2h"}, // longer than the default of WEBHOOK_BACKOFF_MAX
		"FORGERUN_WEBHOOK_BACKOFF_MAX":         {"0s", "1s"},
		"FORGERUN_WEBHOOK_CONCURRENCY":         {"0", "x"},
		"FORGERUN_WEBHOOK_CLIENT_RATE":         {"-1", "many"},
		"FORGERUN_WEBHOOK_DISABLE_AFTER":       {"-1s"},
		"FORGERUN_TRUSTED_PROXIES":             {"localhost", "10.0.0.0/33", "10.0.0.0/8;192.0.2.1", "fe80::1%eth0"},

		"FORGERUN_CORS_ORIGINS": {"app.example.com", "https://app.example.com/", "null", "*,loopback", "https://*.example.com"},

		"FORGERUN_DB_TIMEOUT": {"0s", "1ms"},

		"OTEL_EXPORTER_OTLP_ENDPOINT":        {"localhost:4318", "ftp://localhost", "http://me:hunter2@localhost:4318"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"localhost:4318", "https://hunter2@localhost/v1/traces"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {"http", "http/json"},
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": {"http", "http/json"},
		"OTEL_TRACES_EXPORTER":               {"console", "otlp,none", "None"},
		"OTEL_RESOURCE_ATTRIBUTES":           {"nonsense", "a=b,c", "a=b,", ",="},
		"OTEL_TRACES_SAMPLER_ARG":            {"-1", "2", "x"},
	}
	anything := []string{ // LoadConfig accepts every value of these variables
		"FORGERUN_DATA_DIR", "FORGERUN_OUTCOME_STREAM", "OTEL_EXPORTER_OTLP_HEADERS", "OTEL_SERVICE_NAME",
	}
	var cfg Config
	for _, v := range cfg.variables() {
		values := bad[v.name]
		if values == nil && !slices.Contains(anything, v.name) {
			values = []string{"perhaps"} // no other variable accepts this word
		}
		for i, value := range values {
			roles := []string{"api"}
			if i == 0 {
				roles = []string{"api", "worker", "deliverer", "dev", "migrate"}
			}
			for _, role := range roles {
				code, _, stderr := runWith(t, merge(required, env{v.name: value}), role)
				require.Equal(t, 2, code, "%s %s=%s", role, v.name, value)
				require.Contains(t, stderr, v.name)
				if v.secret {
					require.NotContains(t, stderr, value)
				}
				require.NotContains(t, stderr, "hunter2")
			}
		}
	}
}

func TestMissingStoresStopTheStart(t *testing.T) {
	t.Parallel()
	for name := range required {
		for _, role := range []string{"api", "worker"} {
			code, _, stderr := runWith(t, merge(required, env{name: ""}), role)
			require.Equal(t, 2, code)
			require.Contains(t, stderr, name+" is required")
		}
	}
	key := env{"FORGERUN_MASTER_KEY": masterKey}
	for _, c := range []struct {
		role, sentence string
		env            env
	}{
		{"deliverer", "FORGERUN_MASTER_KEY is required", nil}, {"deliverer", "FORGERUN_PUBLIC_URL is required", key},
		{"rotate-signing-key", "FORGERUN_MASTER_KEY is required", nil},
		{"worker", "FORGERUN_PUBLIC_URL is required", env{"FORGERUN_OUTCOME_STREAM": "outcomes"}},
		{"api", "FORGERUN_CORS_ORIGINS=* cannot be combined with FORGERUN_OPEN_REGISTRATION",
			env{"FORGERUN_CORS_ORIGINS": "*", "FORGERUN_OPEN_REGISTRATION": "true"}},
	} {
		code, _, stderr := runWith(t, merge(required, c.env), c.role)
		require.Equal(t, 2, code)
		require.Contains(t, stderr, c.sentence)
	}
}

func TestUnknownVariableWarning(t *testing.T) {
	t.Parallel()
	api := startProc(t, merge(required, env{"FORGERUN_TIMESCALE": "0", "FORGERUN_METRICS": "false", "FORGERUN_HTTP_ADDR": "127.0.0.1:0",
		"FORGERUN_ADMIN_ADDR": "127.0.0.1:0"}), func() []string { return nil }, "api")
	for _, name := range []string{"FORGERUN_TIMESCALE", "FORGERUN_METRICS"} {
		api.logged("ignoring an unknown environment variable; 'forgerun config --all' lists all known ones", name)
	}
}

func TestConfigMasksSecrets(t *testing.T) {
	t.Parallel()
	secrets := env{
		"FORGERUN_DATABASE_URL": "postgres://me:hunter2@db.example.com/x",
		"FORGERUN_REDIS_URL":    "redis://:hunter2@redis.example.com",
		"FORGERUN_ADMIN_TOKEN":  "hunter2-hunter2-hunter2",
	}
	misplaced := env{
		"OTEL_EXPORTER_OTLP_ENDPOINT":        "http://me:hunter2@collector.example.com",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "me:hunter2@collector.example.com:4318",
	}
	code, stdout, stderr := runWith(t, merge(secrets, misplaced), "config", "worker")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, "credentials belong in OTEL_EXPORTER_OTLP_HEADERS")
	require.NotContains(t, stdout+stderr, "hunter2")
	code, stdout, stderr = runWith(t, secrets, "config", "worker")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout, "FORGERUN_MAX_RETRIES", "the variable has its default value")
	require.Contains(t, stdout, "variables have their default values; to show them: forgerun config worker --all")
	code, stdout, stderr = runWith(t, secrets, "config", "worker", "--all")
	require.Zero(t, code, stderr)
	require.NotContains(t, stdout+stderr, "hunter2")
	require.Equal(t, len(secrets), strings.Count(stdout, "********"))
	var cfg Config
	for _, v := range cfg.variables() {
		require.Contains(t, stdout, v.name)
	}
	for role, environment := range map[string]env{"api": secrets, "dev": nil} {
		_, stdout, _ = runWith(t, environment, "config")
		require.Contains(t, stdout, "to show them: forgerun config "+role+" --all")
	}
	code, _, stderr = runWith(t, merge(secrets, env{"FORGERUN_TIME_SCALE": "fast", "FORGERUN_MAX_RETRIES": "few"}), "config")
	require.Equal(t, 2, code)
	require.Contains(t, stderr, `FORGERUN_TIME_SCALE="fast": must be a number from 0 to 1000`)
	require.Contains(t, stderr, `FORGERUN_MAX_RETRIES="few": must be a whole number from 0 to 100`, "all errors are reported at once")
}

func TestTracingIsConfigured(t *testing.T) {
	t.Parallel()
	const collector = "http://127.0.0.1:4318"
	for _, c := range []struct {
		env      env
		enabled  bool
		protocol string
	}{
		{nil, false, "http/protobuf"},
		{env{"OTEL_EXPORTER_OTLP_ENDPOINT": collector}, true, "http/protobuf"},
		{env{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": collector, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, true, "grpc"},
		{env{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, false, "grpc"},
		{env{"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_TRACES_EXPORTER": "none"}, false, "http/protobuf"},
		{env{"OTEL_EXPORTER_OTLP_ENDPOINT": collector, "OTEL_SDK_DISABLED": "true"}, false, "http/protobuf"},
		{env{"OTEL_RESOURCE_ATTRIBUTES": "a=b, team = me@example.com,c=,d=%zz"}, false, "http/protobuf"},
	} {
		all := merge(required, c.env)
		cfg, err := LoadConfig("api", func(name string) string { return all[name] })
		require.NoError(t, err)
		require.Equal(t, c.enabled, cfg.Tracing.enabled(), c.env)
		require.Equal(t, c.protocol, cfg.Tracing.protocol(), c.env)
	}
}

func TestConfigurationPageListsWhatExists(t *testing.T) {
	t.Parallel()
	var documented, actual []string
	for line := range strings.Lines(readText(t, "../../docs/reference/configuration.md")) {
		if strings.HasPrefix(line, "| FORGERUN_") || strings.HasPrefix(line, "| OTEL_") {
			documented = append(documented, strings.TrimSpace(line))
		}
	}
	var cfg Config
	for _, v := range cfg.variables() {
		fallback := v.fallback
		if strings.Contains(fallback, "*") { // * would be emphasis in Markdown
			fallback = "`" + fallback + "`"
		}
		if v.dev != "" {
			fallback = strings.TrimSpace(fallback + " (" + v.dev + " in dev)")
		}
		actual = append(actual, "| "+v.name+" | "+fallback+" | "+v.help+" |")
	}
	slices.Sort(actual)
	slices.Sort(documented) // the page lists the variables in another order
	require.Empty(t, cmp.Diff(actual, documented), "-code +docs/reference/configuration.md")
}
