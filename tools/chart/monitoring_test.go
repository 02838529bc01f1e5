package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// Prometheus scrapes each role at its admin listener, even if the pod is not ready. The scrape job has the name that rules and
// dashboards use.
func TestPrometheusFindsEachRole(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		monitors := of[*monitoring.ServiceMonitor](r)
		require.Equal(t, set == "hpa" || set == "keda", len(monitors) == 1)
		for _, m := range monitors {
			selector, err := meta.LabelSelectorAsSelector(&m.Spec.Selector)
			require.NoError(t, err)
			var jobs []string
			for name, s := range of[*core.Service](r) {
				if selector.Matches(labels.Set(s.Labels)) {
					jobs = append(jobs, s.Labels[m.Spec.JobLabel])
					require.Equal(t, m.Spec.Endpoints[0].Port, s.Spec.Ports[0].Name, name)
					require.True(t, s.Spec.PublishNotReadyAddresses, name)
					require.Equal(t, core.ClusterIPNone, s.Spec.ClusterIP, name)
				}
			}
			require.ElementsMatch(t, roles, jobs)
			require.Equal(t, "/metrics", m.Spec.Endpoints[0].Path)
			require.Equal(t, set == "hpa", m.Labels["release"] == "kube-prometheus-stack")
		}
	})
}

// helm must not evaluate the templates in the rules.
func TestRulesAreThoseOfTheRepository(t *testing.T) {
	t.Parallel()
	var want []monitoring.Rule
	for _, name := range []string{"recording.yml", "alerts.yml"} {
		content, err := os.ReadFile(root + "monitoring/prometheus/" + name)
		require.NoError(t, err)
		var file monitoring.PrometheusRuleSpec
		require.NoError(t, yaml.UnmarshalStrict(content, &file))
		for _, group := range file.Groups {
			want = append(want, group.Rules...)
		}
	}
	require.Greater(t, len(want), 50)
	var got []monitoring.Rule
	names := map[string]bool{}
	for _, group := range of[*monitoring.PrometheusRule](render(t, "keda"))["demo-forgerun"].Spec.Groups {
		require.False(t, names[group.Name], "duplicate group %s", group.Name)
		names[group.Name] = true
		require.Equal(t, monitoring.Duration("10s"), *group.Interval, "alerts use recordings from the last 40 s")
		got = append(got, group.Rules...)
	}
	require.Equal(t, want, got)
}

func TestDashboardsAreThoseOfTheRepository(t *testing.T) {
	t.Parallel()
	found := of[*core.ConfigMap](render(t, "hpa"))
	paths, err := filepath.Glob(root + "monitoring/grafana/dashboards/*.json")
	require.NoError(t, err)
	require.Len(t, found, len(paths))
	for _, c := range found {
		require.Equal(t, "1", c.Labels["grafana_dashboard"])
		for name, shown := range c.Data {
			content, err := os.ReadFile(root + "monitoring/grafana/dashboards/" + strings.TrimPrefix(name, "forgerun-"))
			require.NoError(t, err)
			require.JSONEq(t, strings.ReplaceAll(string(content), "forgerun-prometheus", "thanos"), shown)
		}
	}
}
