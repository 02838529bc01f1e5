package monitoring_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type dashboard struct {
	UID, Title, Description string
	SchemaVersion           int
	Templating              struct{ List []struct{ Name string } }
	Panels                  []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Datasource               *struct{ UID string }
	Targets                  []struct {
		RefID      string `json:"refId"`
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

// What links and bookmarks rely on, and what a reader needs.
func TestDashboardsAreComplete(t *testing.T) {
	t.Parallel()
	prometheus := grafanaSources(t).Sources[0].UID
	plugins := []string{"row", "stat", "table", "timeseries"} // those that Grafana has
	uids := map[string]bool{}
	var shown strings.Builder
	for path, d := range dashboards(t) {
		require.Regexp(t, `^forgerun-[a-z]+$`, d.UID, path)
		require.False(t, uids[d.UID], "%s is there twice", d.UID)
		uids[d.UID] = true
		require.NotEmpty(t, d.Description, path)
		require.GreaterOrEqual(t, d.SchemaVersion, 41, path)
		ids := map[int]bool{}
		for _, p := range d.Panels {
			where := path + ": " + p.Title
			require.False(t, ids[p.ID], "%s has another one's id", where)
			ids[p.ID] = true
			require.Contains(t, plugins, p.Type, where)
			require.NotEmpty(t, p.Title, path)
			if p.Type == "row" {
				continue
			}
			require.Regexp(t, `\.$`, p.Description, where)
			require.NotEmpty(t, p.FieldConfig.Defaults.Unit, where)
			require.Equal(t, prometheus, p.Datasource.UID, where)
			require.NotEmpty(t, p.Targets, where)
			for _, target := range p.Targets {
				require.Equal(t, prometheus, target.Datasource.UID, where)
				requireVariablesExist(t, d, target.Expr)
				shown.WriteString(target.Expr + "\n")
			}
		}
	}
	for _, metric := range []string{ // whoever is refused a connection or a look at credentials is to be seen
		"auth_failures_total", "auth_attempts_failed_total", "auth_attempts_refused_total", "connections_refused_total", "accept_failures_total",
	} {
		require.Contains(t, shown.String(), metric+"[")
	}
}

func requireVariablesExist(t *testing.T, d dashboard, expr string) {
	t.Helper()
	known := []string{"__rate_interval"} // Grafana's own
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
	}
	for _, match := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(expr, -1) {
		require.True(t, slices.Contains(known, match[1]), "%s: no variable %s for %s", d.UID, match[0], expr)
	}
}
