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

func TestPrometheusAcceptsRules(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool")
	tests, err := filepath.Glob("prometheus/*_test.yml")
	require.NoError(t, err)
	require.NotEmpty(t, tests)
	runs := [][]string{{"check", "config", "prometheus/prometheus.yml"}} // this also checks the rules that the file names
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

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, into), path)
}

const runbookURL = "https://github.com/forgerun/forgerun/blob/main/docs/how-to/runbook.md#"

func TestRunbookHasEachAlert(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/how-to/runbook.md")
	require.NoError(t, err)
	var headings, names []string
	for _, match := range regexp.MustCompile(`(?m)^### (.+)$`).FindAllStringSubmatch(string(page), -1) {
		headings = append(headings, match[1])
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert               string
				Labels, Annotations map[string]string
			}
		}
	}
	readYAML(t, "prometheus/alerts.yml", &file)
	for _, group := range file.Groups {
		for _, a := range group.Rules {
			names = append(names, a.Alert)
			require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"], a.Alert)
			require.Equal(t, runbookURL+strings.ToLower(a.Alert), a.Annotations["runbook_url"])
		}
	}
	require.NotEmpty(t, names)
	require.Equal(t, names, headings)
}
