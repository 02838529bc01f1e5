package monitoring_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Replicas publish no ports, and both api processes are known to the balancer and to Prometheus.
func TestComposeHA(t *testing.T) {
	t.Parallel()
	variables := maps.Clone(requiredVariables)
	variables["WORKERS"], variables["DELIVERERS"] = "3", "2"
	project, err := loadCompose(t, composeFile, variables, "ha")
	require.NoError(t, err)
	services := project.Services
	require.ElementsMatch(t, []string{"api", "api-2", "balancer", "migrate", "postgres", "postgres-standby", "redis", "redis-replica",
		"sentinel", "deliverer", "worker"}, project.ServiceNames())
	for name, replicas := range map[string]int{"worker": 3, "deliverer": 2, "sentinel": 3} {
		service := services[name]
		require.Equal(t, replicas, service.GetScale(), name)
		require.Empty(t, service.Ports, "%s cannot publish a port twice", name)
	}
	require.Equal(t, services["postgres"].Image, services["postgres-standby"].Image)
	require.Equal(t, services["redis"].Image, services["redis-replica"].Image)
	require.Empty(t, services["api-2"].Ports)
	require.Equal(t, []string{"api-1"}, services["api"].Networks["default"].Aliases)
	require.Equal(t, []string{"api"}, services["api-2"].Networks["default"].Aliases, "Prometheus scrapes both")
	require.Equal(t, "8090", services["balancer"].Ports[0].Published)
}

// The containers of the roles get the variables of .env.example. The default of an unset variable is the same with and without compose.
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
	for name, roles := range map[string][]string{
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
