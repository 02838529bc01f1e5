package chart_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

type trigger struct {
	query, kind string
	target      int
}

func triggers(t *testing.T, role string) map[string]trigger {
	t.Helper()
	found := map[string]trigger{}
	scaling := load(t).Values[role].(map[string]any)["autoscaling"].(map[string]any)
	for name, value := range scaling["triggers"].(map[string]any) {
		v := value.(map[string]any)
		found[name] = trigger{v["query"].(string), v["type"].(string), int(v["target"].(float64))}
	}
	require.NotEmpty(t, found)
	return found
}

// Either the values or one autoscaler set the replicas of a Deployment, never both.
func TestOneOwnerOfReplicas(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		scalers := map[string]int{}
		for name, h := range of[*autoscaling.HorizontalPodAutoscaler](r) {
			require.Equal(t, "Deployment", h.Spec.ScaleTargetRef.Kind)
			require.Equal(t, name, h.Spec.ScaleTargetRef.Name)
			require.Positive(t, *h.Spec.MinReplicas)
			require.Greater(t, h.Spec.MaxReplicas, *h.Spec.MinReplicas)
			require.GreaterOrEqual(t, *h.Spec.Behavior.ScaleDown.StabilizationWindowSeconds, int32(300), name)
			scalers[name]++
		}
		for name, s := range of[*keda.ScaledObject](r) {
			require.Equal(t, "Deployment", s.Spec.ScaleTargetRef.Kind)
			require.Equal(t, name, s.Spec.ScaleTargetRef.Name)
			require.Positive(t, *s.Spec.MinReplicaCount, "only running workers report that work is waiting")
			require.Greater(t, *s.Spec.MaxReplicaCount, *s.Spec.MinReplicaCount)
			behavior := s.Spec.Advanced.HorizontalPodAutoscalerConfig.Behavior
			require.GreaterOrEqual(t, *behavior.ScaleDown.StabilizationWindowSeconds, int32(300), name)
			scalers[name]++
		}
		for name, d := range of[*apps.Deployment](r) {
			owners := scalers[name]
			if d.Spec.Replicas != nil {
				owners++
			}
			require.Equal(t, 1, owners, name)
		}
		require.Len(t, scalers, map[string]int{"default": 0, "minimal": 0, "hpa": 3, "keda": 2}[set])
	})
}

// If Prometheus has no value, KEDA must not take it as zero (ignoreNullValues).
func TestScaledObjectsUseQueriesOfValues(t *testing.T) {
	t.Parallel()
	for name, s := range of[*keda.ScaledObject](render(t, "keda")) {
		var want, queries []string
		for _, trigger := range triggers(t, role(s)) {
			want = append(want, trigger.kind+" "+trigger.query)
		}
		for _, got := range s.Spec.Triggers {
			require.Equal(t, "prometheus", got.Type)
			require.Equal(t, "prometheus", got.AuthenticationRef.Name)
			require.Equal(t, "https://prometheus.example.com", got.Metadata["serverAddress"])
			require.Equal(t, "false", got.Metadata["ignoreNullValues"])
			queries = append(queries, string(got.MetricType)+" "+got.Metadata["query"])
		}
		require.ElementsMatch(t, want, queries, name)
	}
	worker := of[*keda.ScaledObject](render(t, "keda"))["demo-forgerun-worker"].Spec.Triggers
	require.Equal(t, []string{"100", "30"}, []string{worker[0].Metadata["threshold"], worker[1].Metadata["threshold"]})
}

func TestAutoscalersUseRecordedMetrics(t *testing.T) {
	t.Parallel()
	r := render(t, "hpa")
	recorded := map[string]string{}
	for _, group := range of[*monitoring.PrometheusRule](r)["runner-autoscaling"].Spec.Groups {
		for _, rule := range group.Rules {
			recorded[rule.Record] = rule.Expr.String()
		}
	}
	asked := 0
	for name, h := range of[*autoscaling.HorizontalPodAutoscaler](r) {
		if role(h) == "api" {
			require.Len(t, h.Spec.Metrics, 1)
			require.Equal(t, core.ResourceCPU, h.Spec.Metrics[0].Resource.Name)
			require.NotZero(t, r.pods(t)["api"].Spec.Containers[0].Resources.Requests.Cpu().MilliValue(), "utilization is relative to it")
			continue
		}
		want := triggers(t, role(h))
		require.Len(t, h.Spec.Metrics, len(want), name)
		for _, m := range h.Spec.Metrics {
			trigger := want[m.External.Metric.Name]
			require.Equal(t, trigger.query, recorded[m.External.Metric.Name], m.External.Metric.Name)
			require.Equal(t, trigger.kind, string(m.External.Target.Type))
			target := m.External.Target.Value
			if trigger.kind == "AverageValue" {
				target = m.External.Target.AverageValue
			}
			require.EqualValues(t, trigger.target, target.Value())
			asked++
		}
	}
	require.Len(t, recorded, asked)
	require.NotContains(t, of[*monitoring.PrometheusRule](render(t, "keda")), "demo-forgerun-autoscaling")
}

// Only work that waits for free workers starts pods. Paused work, or work between two tries, starts none.
func TestPodsAreAddedForWorkThatWaitsForThem(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "scripts/setup.sh ci installs promtool")
		t.Skip("promtool is not installed")
	}
	rules, err := yaml.Marshal(of[*monitoring.PrometheusRule](render(t, "hpa"))["runner-autoscaling"].Spec)
	require.NoError(t, err)
	cases, err := os.ReadFile("testdata/autoscaling_test.yml")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), rules, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cases.yml"), cases, 0o600))
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", filepath.Join(dir, "cases.yml")).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
