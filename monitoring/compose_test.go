package monitoring_test

import (
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
)

const (
	composeFile = "../docker-compose.yml"
	proxyFile   = "../deploy/compose/proxy.yml"
)

// requiredVariables must be set, or docker compose starts nothing.
var requiredVariables = map[string]string{
	"FORGERUN_ADMIN_TOKEN":   "the-operators-token",
	"FORGERUN_MASTER_KEY":    "a-master-key",
	"GRAFANA_ADMIN_PASSWORD": "grafanas-password",
	"POSTGRES_PASSWORD":      "the-databases-password",
}

func loadCompose(t *testing.T, file string, variables map[string]string, profiles ...string) (*types.Project, error) {
	t.Helper()
	path, err := filepath.Abs(file)
	require.NoError(t, err)
	return loader.LoadWithContext(t.Context(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(path),
		ConfigFiles: []types.ConfigFile{{Filename: path}},
		Environment: maps.Clone(variables), // a copy, since the loader adds to the map
	}, loader.WithProfiles(profiles), func(o *loader.Options) { o.SetProjectName("forgerun", false) })
}

func compose(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	project, err := loadCompose(t, composeFile, requiredVariables, profiles...)
	require.NoError(t, err)
	return project
}

func TestComposeProfiles(t *testing.T) {
	t.Parallel()
	service := []string{"api", "migrate", "postgres", "redis", "deliverer", "worker"}
	watching := []string{"grafana", "jaeger", "prometheus"}
	plain := compose(t)
	require.ElementsMatch(t, service, plain.ServiceNames())
	require.ElementsMatch(t, append(watching, service...), compose(t, "monitoring").ServiceNames())
	require.ElementsMatch(t, append([]string{"dev"}, service...), compose(t, "dev").ServiceNames())

	const variable, collector = "OTEL_EXPORTER_OTLP_ENDPOINT", "http://jaeger:4318"
	header, err := os.ReadFile(composeFile)
	require.NoError(t, err)
	require.Contains(t, string(header), variable+"="+collector+" docker compose --profile monitoring up")
	variables := maps.Clone(requiredVariables)
	variables[variable] = collector
	traced, err := loadCompose(t, composeFile, variables, "monitoring")
	require.NoError(t, err)
	for _, role := range []string{"api", "worker", "deliverer"} {
		require.Nil(t, plain.Services[role].Environment[variable], role)
		require.Equal(t, collector, *traced.Services[role].Environment[variable], role)
	}
}

func proxy(t *testing.T) types.ServiceConfig {
	t.Helper()
	_, err := loadCompose(t, proxyFile, nil)
	require.ErrorContains(t, err, "TARGET")
	project, err := loadCompose(t, proxyFile, map[string]string{"TARGET": "http://web:3000"})
	require.NoError(t, err)
	return project.Services["proxy"]
}

// The proxy runs in the small image, which contains only the program.
func TestComposeProxyJudgesAnyTarget(t *testing.T) {
	t.Parallel()
	s := proxy(t)
	require.Equal(t, "roles", s.Build.Target)
	require.Equal(t, "proxy --listen 0.0.0.0:9000 --target http://web:3000 --profile default", strings.Join(s.Command, " "))
	require.Equal(t, uint32(9000), s.Ports[0].Target)
}

func TestComposeServicesHaveLimitsAndChecks(t *testing.T) {
	t.Parallel()
	exact := regexp.MustCompile(`:v?\d+\.\d+\.\d+$`)
	folder, err := filepath.Abs(".")
	require.NoError(t, err)
	services := compose(t, "monitoring", "dev", "ha").Services
	services["proxy"] = proxy(t)
	for name, s := range services {
		require.NotNil(t, s.Deploy, name)
		require.Positive(t, s.Deploy.Resources.Limits.MemoryBytes, name)
		require.Positive(t, s.Deploy.Resources.Limits.NanoCPUs, name)
		switch {
		case s.Build != nil:
		case slices.Contains(s.Profiles, "monitoring"):
			require.Regexp(t, exact, s.Image, name)
		default: // Postgres, Redis or Caddy; the tag is a major version
			require.Regexp(t, `:\d+$`, s.Image, name)
		}
		for _, port := range s.Ports {
			require.True(t, net.ParseIP(port.HostIP).IsLoopback(), "%s publishes port %s on %q", name, port.Published, port.HostIP)
		}
		for _, volume := range s.Volumes {
			if volume.Type != types.VolumeTypeBind {
				continue
			}
			if strings.HasPrefix(volume.Source, folder) {
				require.DirExists(t, volume.Source, name)
			} else {
				require.FileExists(t, volume.Source, name)
			}
			require.True(t, volume.ReadOnly, "%s may write to %s", name, volume.Source)
		}
		if s.Build == nil {
			require.NotNil(t, s.HealthCheck, name)
			require.NotEmpty(t, s.HealthCheck.Test, name)
		} else if name != "migrate" { // migrate runs once, so it needs no health check
			require.True(t, s.HealthCheck == nil || !s.HealthCheck.Disable, "%s: the image's check is in force", name)
		}
	}
}

// Every variable that the compose file reads is in .env.example, and the compose file reads every variable of .env.example.
func TestEnvExampleListsVariablesOfCompose(t *testing.T) {
	t.Parallel()
	names := func(file, pattern string) (found []string) {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(content), -1) {
			if name := match[1]; !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
		return found
	}
	read := append(names(composeFile, `\$\{([A-Z_]+)`), names(composeFile, `(?m)^    (FORGERUN_[A-Z_]+):$`)...)
	require.ElementsMatch(t, append(read, "OTEL_EXPORTER_OTLP_ENDPOINT"), names("../.env.example", `(?m)^#?([A-Z_]+)=`))
	for name := range requiredVariables {
		require.Contains(t, names("../.env.example", `(?m)^([A-Z_]+)=$`), name, "the variable has an empty line in .env.example")
	}
}

// Secrets come only from the environment, and a missing secret is an error.
func TestComposeHoldsNoSecret(t *testing.T) {
	t.Parallel()
	for missing := range requiredVariables {
		variables := maps.Clone(requiredVariables)
		delete(variables, missing)
		_, err := loadCompose(t, composeFile, variables)
		require.ErrorContains(t, err, missing)
	}
	grafana := compose(t, "monitoring").Services["grafana"].Environment
	require.Equal(t, requiredVariables["GRAFANA_ADMIN_PASSWORD"], *grafana["GF_SECURITY_ADMIN_PASSWORD"], "not the default password")
	content, err := os.ReadFile(composeFile)
	require.NoError(t, err)
	secrets := regexp.MustCompile(`(?m)^\s+\w*(?:PASSWORD|TOKEN|KEY|SECRET|HEADERS): *(.*)$`).FindAllStringSubmatch(string(content), -1)
	require.NotEmpty(t, secrets)
	for _, match := range secrets {
		require.Regexp(t, `^$|^\*[a-z-]+$|^(&[a-z-]+ )?\$\{`, match[1], match[0])
	}
}

type scrapeConfigs struct {
	RuleFiles []string `yaml:"rule_files"`
	Scrape    []struct {
		Job string `yaml:"job_name"`
		DNS []struct {
			Names []string
			Type  string
			Port  uint32
		} `yaml:"dns_sd_configs"`
	} `yaml:"scrape_configs"`
}

func TestPrometheusScrapesEveryRole(t *testing.T) {
	t.Parallel()
	services := compose(t, "monitoring").Services
	var config scrapeConfigs
	readYAML(t, "prometheus/prometheus.yml", &config)
	for _, file := range config.RuleFiles {
		require.FileExists(t, filepath.Join("prometheus", file))
	}
	var jobs []string
	for _, scrape := range config.Scrape {
		jobs = append(jobs, scrape.Job)
		require.Len(t, scrape.DNS, 1)
		require.Equal(t, []string{scrape.Job}, scrape.DNS[0].Names, "a scrape job has the name of its service")
		require.Equal(t, "A", scrape.DNS[0].Type)
		require.Contains(t, services, scrape.Job)
		environment := services[scrape.Job].Environment
		require.Equal(t, "0.0.0.0:"+strconv.Itoa(int(scrape.DNS[0].Port)), *environment["FORGERUN_ADMIN_ADDR"], scrape.Job)
		require.Equal(t, requiredVariables["FORGERUN_ADMIN_TOKEN"], *environment["FORGERUN_ADMIN_TOKEN"], scrape.Job)
	}
	require.ElementsMatch(t, []string{"api", "worker", "deliverer"}, jobs)
}

func TestGrafanaSourcesAreServices(t *testing.T) {
	t.Parallel()
	services := compose(t, "monitoring").Services
	var file struct {
		Sources []struct{ URL string } `yaml:"datasources"`
	}
	readYAML(t, "grafana/provisioning/datasources/forgerun.yml", &file)
	require.NotEmpty(t, file.Sources)
	for _, source := range file.Sources {
		at, err := url.Parse(source.URL)
		require.NoError(t, err)
		require.Contains(t, services, at.Hostname())
		require.True(t, slices.ContainsFunc(services[at.Hostname()].Ports, func(p types.ServicePortConfig) bool {
			return strconv.Itoa(int(p.Target)) == at.Port()
		}), "%s has no port %s", at.Hostname(), at.Port())
	}
}

func TestGrafanaFindsItsFiles(t *testing.T) {
	t.Parallel()
	grafana := compose(t, "monitoring").Services["grafana"]
	var file struct {
		Providers []struct{ Options struct{ Path string } }
	}
	readYAML(t, "grafana/provisioning/dashboards/forgerun.yml", &file)
	require.Len(t, file.Providers, 1)
	folder := file.Providers[0].Options.Path
	mounted := slices.IndexFunc(grafana.Volumes, func(v types.ServiceVolumeConfig) bool { return v.Target == folder })
	require.GreaterOrEqual(t, mounted, 0, "%s is not mounted", folder)
	dashboards, err := filepath.Abs("grafana/dashboards")
	require.NoError(t, err)
	require.Equal(t, dashboards, grafana.Volumes[mounted].Source)
	home := *grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	require.FileExists(t, filepath.Join(dashboards, strings.TrimPrefix(home, folder)))
}
