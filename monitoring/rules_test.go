package monitoring_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// What Prometheus says of its configuration, the rules and their tests.
func TestPrometheusAcceptsRules(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool")
	tests, err := filepath.Glob("prometheus/*_test.yml")
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	runs := [][]string{{"check", "config", "prometheus/prometheus.yml"}} // and the rules that it names
	for _, file := range tests {
		runs = append(runs, []string{"test", "rules", file})
	}
	for _, args := range runs {
		t.Run(filepath.Base(args[2]), func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
			require.NoError(t, err, "promtool %v:\n%s", args, out)
		})
	}
}

// program finds a program that people need not have, but CI must.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			require.FailNow(t, name+" is not installed: scripts/setup.sh ci installs it")
		}
		t.Skip(name + " is not installed (package prometheus): what it would check is not checked")
	}
	return path
}

type alert struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations struct {
		Summary     string
		Description string
		RunbookURL  string `yaml:"runbook_url"`
	}
}

func alerts(t *testing.T) (found []alert) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	readYAML(t, "prometheus/alerts.yml", &file)
	for _, group := range file.Groups {
		found = append(found, group.Rules...)
	}
	require.NotEmpty(t, found)
	return found
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, into), path)
}

func TestAlertsSayWhatAPersonNeeds(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, a := range alerts(t) {
		require.Regexp(t, `^Forgerun[A-Z][A-Za-z]+$`, a.Alert)
		require.False(t, names[a.Alert], "%s is there twice", a.Alert)
		names[a.Alert] = true
		require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"], a.Alert)
		require.Regexp(t, `^[A-Z].+\.$`, a.Annotations.Summary, a.Alert)
		require.Regexp(t, `^.+\.$`, a.Annotations.Description, a.Alert)
		require.Equal(t, runbookURL+strings.ToLower(a.Alert), a.Annotations.RunbookURL)
	}
}

const runbookURL = "https://github.com/forgerun/forgerun/blob/main/docs/how-to/runbook.md#"

// Each alert has its paragraph, in the order of the rules, and no paragraph is
// of an alert that does not exist.
func TestRunbookHasEachAlert(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/runbook.md")
	require.NoError(t, err)
	var headings, names []string
	for _, match := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, match[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
	}
	require.Equal(t, names, headings)
}

// Each alert fires in one case of the rules' tests, and is quiet in another.
func TestEachAlertIsTestedBothWays(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("prometheus/*_test.yml")
	require.NoError(t, err)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, path := range paths {
		var file struct {
			Tests []struct {
				Cases []struct {
					Expr    string
					Samples []any `yaml:"exp_samples"`
				} `yaml:"promql_expr_test"`
			}
		}
		readYAML(t, path, &file)
		for _, test := range file.Tests {
			for _, c := range test.Cases {
				if match := regexp.MustCompile(`^ALERTS\{alertname="(\w+)"`).FindStringSubmatch(c.Expr); match != nil {
					fires[match[1]] = fires[match[1]] || len(c.Samples) > 0
					quiet[match[1]] = quiet[match[1]] || len(c.Samples) == 0
				}
			}
		}
	}
	for _, a := range alerts(t) {
		require.True(t, fires[a.Alert], "no case in which %s fires", a.Alert)
		require.True(t, quiet[a.Alert], "no case in which %s is quiet", a.Alert)
	}
}
