package monitoring_test

import (
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/stretchr/testify/require"
)

// exampleWith returns the settings of .env.example, including the commented lines below a heading.
func exampleWith(t *testing.T, heading string) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../.env.example")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(content), heading+"\n")
	require.True(t, found, heading)
	text, _, _ = strings.Cut(text, "\n\n")
	lines := regexp.MustCompile(`(?m)^#([A-Z_]+=)`).ReplaceAllString(text, "$1")
	variables, err := dotenv.ParseWithLookup(strings.NewReader(lines), func(name string) (string, bool) {
		value, ok := requiredVariables[name]
		return value, ok
	})
	require.NoError(t, err)
	maps.Copy(variables, requiredVariables)
	return variables
}

// With the lines of .env.example, the roles use the stores that the profile starts, and the balancer uses the roles that it starts.
func TestComposeHA(t *testing.T) {
	t.Parallel()
	project, err := loadCompose(t, composeFile, exampleWith(t, "# With --profile ha, all of these:"), "ha")
	require.NoError(t, err)
	services := project.Services
	require.ElementsMatch(t, []string{"api", "api-2", "balancer", "migrate", "postgres", "postgres-standby", "redis", "redis-replica",
		"sentinel", "deliverer", "worker"}, project.ServiceNames())
	for _, role := range []string{"api", "api-2", "migrate", "deliverer", "worker"} {
		environment := services[role].Environment
		database, err := url.Parse(strings.Replace(*environment["FORGERUN_DATABASE_URL"], ":5432,", ",", 1)) // url.Parse accepts only one port
		require.NoError(t, err)
		require.Equal(t, "postgres,postgres-standby:5432", database.Host, role)
		require.Equal(t, "read-write", database.Query().Get("target_session_attrs"), role)
		password, _ := database.User.Password()
		require.Equal(t, *services["postgres"].Environment["POSTGRES_PASSWORD"], password)
		redis, err := url.Parse(*environment["FORGERUN_REDIS_URL"])
		require.NoError(t, err)
		require.Equal(t, "redis-sentinel", redis.Scheme, role)
		require.Contains(t, services, redis.Hostname(), role)
		config, err := os.ReadFile("../deploy/compose/sentinel.conf")
		require.NoError(t, err)
		require.Contains(t, string(config), "sentinel monitor "+redis.Query().Get("master")+" redis 6379 2\n")
		require.Contains(t, string(config), "port "+redis.Port()+"\n")
	}
	for name, replicas := range map[string]int{"worker": 3, "deliverer": 2, "sentinel": 3} {
		service := services[name]
		require.Equal(t, replicas, service.GetScale(), name)
		require.Empty(t, service.Ports, "%s cannot publish a port twice", name)
	}
	require.Equal(t, services["postgres"].Image, services["postgres-standby"].Image)
	require.Equal(t, services["redis"].Image, services["redis-replica"].Image)
	require.Empty(t, services["api-2"].Ports)

	caddyfile, err := os.ReadFile("../deploy/compose/Caddyfile")
	require.NoError(t, err)
	upstreams := regexp.MustCompile(`reverse_proxy (.*) \{`).FindStringSubmatch(string(caddyfile))
	require.NotNil(t, upstreams)
	require.Equal(t, "api-1:8080 api-2:8080", upstreams[1])
	require.Equal(t, []string{"api-1"}, services["api"].Networks["default"].Aliases)
	require.Equal(t, []string{"api"}, services["api-2"].Networks["default"].Aliases, "Prometheus scrapes both")
	public, err := url.Parse(*services["api"].Environment["FORGERUN_PUBLIC_URL"])
	require.NoError(t, err)
	require.Equal(t, public.Port(), services["balancer"].Ports[0].Published)
	require.Contains(t, string(caddyfile), ":"+public.Port()+" {")
}

// The variables of .env.example reach the roles, and a variable that is not set has the same default as in the service.
func TestComposePassesVariables(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../docs/reference/configuration.md")
	require.NoError(t, err)
	example, err := os.ReadFile("../.env.example")
	require.NoError(t, err)
	names := regexp.MustCompile(`(?m)^#(FORGERUN_[A-Z_]+)=`).FindAllStringSubmatch(string(example), -1)
	require.NotEmpty(t, names)
	variables := maps.Clone(requiredVariables)
	for _, match := range names {
		variables[match[1]] = "as-it-is-set: " + match[1]
	}
	project, err := loadCompose(t, composeFile, variables)
	require.NoError(t, err)
	services := compose(t).Services
	for _, match := range names {
		name := match[1]
		row := regexp.MustCompile(`(?m)^\| ` + name + ` \| ([^ (|]*)`).FindStringSubmatch(string(reference))
		require.NotNil(t, row, name)
		var passed []string
		for role, service := range project.Services {
			if value := service.Environment[name]; value != nil {
				require.Equal(t, variables[name], *value, "%s of %s", name, role)
				passed = append(passed, role)
			}
		}
		require.NotEmpty(t, passed, name)
		value := services[passed[0]].Environment[name]
		others := []string{"FORGERUN_DATABASE_URL", "FORGERUN_REDIS_URL", "FORGERUN_PUBLIC_URL", "FORGERUN_WORKER_CONCURRENCY"}
		if value != nil && !slices.Contains(others, name) {
			require.Equal(t, row[1], *value, "the default of %s", name)
		}
	}
	for name, roles := range map[string][]string{ // the configuration page says that these have the same value in all roles
		"FORGERUN_TESTBED": {"api", "worker", "deliverer"}, "FORGERUN_CLIENT_MAX_RUNNING": {"api", "worker"},
		"FORGERUN_OUTCOME_STREAM": {"api", "worker", "deliverer"}, "FORGERUN_WEBHOOK_CHALLENGE": {"api", "deliverer"},
		"FORGERUN_OPEN_REGISTRATION": {"api"}, "FORGERUN_CORS_ORIGINS": {"api"}, "FORGERUN_WEBHOOK_ALLOW_PRIVATE": {"api", "deliverer"},
	} {
		for _, role := range roles {
			require.NotNil(t, services[role].Environment[name], "%s of %s", name, role)
		}
	}
}

// The roles that send requests to receivers can reach receivers on the host: api (challenges), deliverer (deliveries), dev (both).
func TestComposeReachesTheHost(t *testing.T) {
	t.Parallel()
	services := compose(t, "dev", "ha").Services
	for _, name := range []string{"api", "api-2", "deliverer", "dev"} {
		require.Equal(t, []string{"host-gateway"}, services[name].ExtraHosts["host.docker.internal"], name)
	}
}
