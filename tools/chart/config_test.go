package chart_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// folder holds the forgerun program and the packed chart, which are built once.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "chart"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

var build = sync.OnceValues(func() (output []byte, err error) {
	command := exec.Command("go", "build", "-buildvcs=false", "-o", folder, "./cmd/forgerun")
	command.Dir = root
	return command.CombinedOutput()
})

func forgerun(t *testing.T, environment []string, args ...string) string {
	t.Helper()
	out, err := build()
	require.NoError(t, err, "%s", out)
	command := exec.CommandContext(t.Context(), filepath.Join(folder, "forgerun"), args...)
	command.Env = environment
	out, err = command.CombinedOutput()
	require.NoError(t, err, "forgerun %v: %s", args, out)
	return string(out)
}

var secrets = map[string]string{
	"FORGERUN_DATABASE_URL": "postgres://forgerun:secret@postgres:5432/forgerun", "FORGERUN_REDIS_URL": "redis://redis:6379/0",
	"FORGERUN_MASTER_KEY":  "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
	"FORGERUN_ADMIN_TOKEN": "0123456789abcdef", "FORGERUN_ADMIN_READ_TOKEN": "fedcba9876543210",
	"OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret",
}

func environment(c core.Container) map[string]string {
	found := map[string]string{}
	for _, v := range c.Env {
		found[v.Name] = v.Value
		if v.ValueFrom != nil {
			found[v.Name] = secrets[v.Name]
		}
	}
	return found
}

func variables(t *testing.T) []string {
	t.Helper()
	var names []string
	all := forgerun(t, []string{}, "config", "dev", "--all")
	for _, match := range regexp.MustCompile(`(?m)^  ([A-Z_]+) `).FindAllStringSubmatch(all, -1) {
		names = append(names, match[1])
	}
	require.Greater(t, len(names), 40)
	return names
}

func TestLinterFindsNothing(t *testing.T) {
	t.Parallel()
	for _, set := range sets {
		require.Empty(t, lint.RunAll(chartDir, valuesOf(t, set), namespace).Messages, set)
	}
}

// Secret values come only from the Kubernetes Secret.
func TestRolesTakeTheirEnvironment(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		known := append(variables(t), "GOMEMLIMIT")
		for role, pod := range r.pods(t) {
			c := pod.Spec.Containers[0]
			require.Empty(t, c.EnvFrom)
			var all []string
			seen := map[string]bool{}
			for _, v := range c.Env {
				require.Contains(t, known, v.Name)
				require.False(t, seen[v.Name], "%s has %s twice", role, v.Name)
				seen[v.Name] = true
				_, isSecret := secrets[v.Name]
				require.Equal(t, isSecret, v.ValueFrom != nil, v.Name)
				if isSecret {
					require.False(t, *v.ValueFrom.SecretKeyRef.Optional, v.Name)
					require.Contains(t, []string{"forgerun", "runner", "runner-db-app"}, v.ValueFrom.SecretKeyRef.Name)
					require.NotEmpty(t, v.ValueFrom.SecretKeyRef.Key)
				}
			}
			for name, value := range environment(c) {
				all = append(all, name+"="+value)
			}
			require.Equal(t, role == "api" || role == "deliverer", seen["FORGERUN_MASTER_KEY"], "%s: only api and deliverer need it", role)
			out := forgerun(t, all, "config", role)
			if role != "migrate" {
				require.Regexp(t, `FORGERUN_ADMIN_ADDR +0\.0\.0\.0:8081`, out)
				require.Equal(t, map[string]string{"default": "http://demo-forgerun.jobs", "minimal": "http://demo-forgerun.jobs",
					"hpa": "https://jobs.example.com", "keda": "https://jobs.example.com/forgerun"}[set], environment(c)["FORGERUN_PUBLIC_URL"])
			}
		}
	})
}

// The chart's values.schema.json allows each variable of the service. Exceptions: secrets, and what the chart sets itself.
func TestSchemaKnowsEachVariable(t *testing.T) {
	t.Parallel()
	var schema struct {
		Definitions struct {
			Config struct{ PropertyNames struct{ Enum []string } }
		}
	}
	content, err := os.ReadFile(chartDir + "/values.schema.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &schema))
	elsewhere := append(slices.Collect(maps.Keys(secrets)),
		"FORGERUN_HTTP_ADDR", "FORGERUN_ADMIN_ADDR", "FORGERUN_PUBLIC_URL", "FORGERUN_DATA_DIR")
	require.ElementsMatch(t, variables(t), append(elsewhere, schema.Definitions.Config.PropertyNames.Enum...))
}

func TestValuesThatAreWrongAreRefused(t *testing.T) {
	t.Parallel()
	for text, place := range map[string]string{
		`replicas: 3`:       "replicas",
		`api: {replica: 3}`: "/api",
		`worker: {config: {FORGERUN_WORKER_CONCURENCY: "16"}}`:      "FORGERUN_WORKER_CONCURENCY",
		`common: {config: {FORGERUN_ADMIN_TOKEN: "in the clear"}}`:  "FORGERUN_ADMIN_TOKEN",
		`common: {config: {FORGERUN_SHUTDOWN_GRACE: 30}}`:           "FORGERUN_SHUTDOWN_GRACE",
		`common: {config: {FORGERUN_SHUTDOWN_GRACE: half an hour}}`: "FORGERUN_SHUTDOWN_GRACE",
		`api: {autoscaling: {kind: keda}}`:                          "/api/autoscaling/kind",
		`worker: {autoscaling: {min: 0}}`:                           "/worker/autoscaling/min",
		`common: {disruptionBudget: {maxUnavailable: 0}}`:           "/common/disruptionBudget/maxUnavailable",
		`secrets: {existingSecret: ""}`:                             "/secrets/existingSecret",
		`image: {digest: latest}`:                                   "/image/digest",
	} {
		values := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(text), &values))
		_, err := texts(load(t), values)
		require.ErrorContains(t, err, place, text)
	}
}

func TestChartIsOfTheRelease(t *testing.T) {
	t.Parallel()
	changes, err := os.ReadFile(root + "CHANGELOG.md")
	require.NoError(t, err)
	c := load(t)
	require.Equal(t, regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindStringSubmatch(string(changes))[1], c.Metadata.AppVersion)
	require.Equal(t, "ghcr.io/forgerun/forgerun:"+c.Metadata.AppVersion, render(t, "default").pods(t)["api"].Spec.Containers[0].Image)
}
