package monitoring_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// promtool accepts the configuration and the rules, and the tests of the rules pass.
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

// program returns the path of a program. If it is missing, the test is skipped, but in CI it fails.
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
		RunbookURL string `yaml:"runbook_url"`
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

const runbookURL = "https://github.com/forgerun/forgerun/blob/main/docs/how-to/runbook.md#"

// The runbook has a paragraph for each alert, in the order of the rules, and each alert links to its paragraph. No paragraph names an
// alert that does not exist.
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
		require.Contains(t, []string{"critical", "warning", "info"}, a.Labels["severity"], a.Alert)
		require.Equal(t, runbookURL+strings.ToLower(a.Alert), a.Annotations.RunbookURL)
	}
	require.Equal(t, names, headings)
}

type dashboard struct {
	UID        string
	Templating struct{ List []struct{ Name string } }
	Panels     []panel
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  *struct{ UID string }
	Targets     []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	paths, err := filepath.Glob("grafana/dashboards/*.json")
	require.NoError(t, err)
	all := map[string]dashboard{}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		var d dashboard
		require.NoError(t, json.Unmarshal(content, &d), path)
		all[path] = d
	}
	require.NotEmpty(t, all)
	return all
}

// Dashboards have the properties that links and bookmarks depend on.
func TestDashboardsAreComplete(t *testing.T) {
	t.Parallel()
	prometheus := grafanaSources(t).Sources[0].UID
	uids := map[string]bool{}
	for path, d := range dashboards(t) {
		require.Regexp(t, `^forgerun-[a-z]+$`, d.UID, path)
		require.False(t, uids[d.UID], "duplicate UID %s", d.UID)
		uids[d.UID] = true
		ids := map[int]bool{}
		for _, p := range d.Panels {
			where := path + ": " + p.Title
			require.False(t, ids[p.ID], "%s: duplicate panel id", where)
			ids[p.ID] = true
			if p.Type == "row" {
				continue
			}
			require.Equal(t, prometheus, p.Datasource.UID, where)
			require.NotEmpty(t, p.Targets, where)
			for _, target := range p.Targets {
				require.Equal(t, prometheus, target.Datasource.UID, where)
				requireVariablesExist(t, d, target.Expr)
			}
		}
	}
}

func requireVariablesExist(t *testing.T, d dashboard, expr string) {
	t.Helper()
	known := []string{"__rate_interval"} // Grafana defines this variable
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
	}
	for _, match := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(expr, -1) {
		require.True(t, slices.Contains(known, match[1]), "%s: no variable %s for %s", d.UID, match[0], expr)
	}
}
