package chart_test

import (
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func TestPodsHaveNoRights(t *testing.T) {
	eachSet(t, func(t *testing.T, _ string, r release) {
		for role, pod := range r.pods(t) {
			spec := pod.Spec
			require.False(t, *spec.AutomountServiceAccountToken, role)
			require.True(t, *spec.SecurityContext.RunAsNonRoot, role)
			require.Positive(t, *spec.SecurityContext.RunAsUser, "%s: a kubelet must see that it is not root", role)
			require.Equal(t, core.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, role)
			require.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC, role)
			require.Empty(t, spec.InitContainers, role)
			require.Len(t, spec.Containers, 1, role)
			c := spec.Containers[0]
			require.True(t, *c.SecurityContext.RunAsNonRoot, role)
			require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, role)
			require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, role)
			require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, role)
			require.Empty(t, c.SecurityContext.Capabilities.Add, role)
			require.NotZero(t, c.Resources.Limits.Memory().Value(), role)
			for _, mount := range c.VolumeMounts {
				require.Equal(t, "/tmp", mount.MountPath, role)
			}
			for _, volume := range spec.Volumes {
				require.NotNil(t, volume.EmptyDir, role)
			}
		}
	})
}

func TestPodsAreProbedAndSpread(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		for role, pod := range r.pods(t) {
			c := pod.Spec.Containers[0]
			require.Equal(t, role, c.Args[0])
			require.Equal(t, "ghcr.io/forgerun/forgerun", c.Image[:strings.IndexAny(c.Image, ":@")])
			if role == "migrate" {
				continue
			}
			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			require.Equal(t, int32(8081), ports["admin"], role)
			require.Equal(t, role == "api", ports["http"] == 8080, role)
			require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path, "an outage of Postgres restarts no pod")
			require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
			for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
				require.Contains(t, ports, probe.HTTPGet.Port.String(), role)
			}
			require.Equal(t, set == "minimal", len(pod.Spec.TopologySpreadConstraints) == 0)
		}
	})
}

// The termination grace period is at least 30 s longer than FORGERUN_SHUTDOWN_GRACE and than FORGERUN_WEBHOOK_TIMEOUT.
func TestPodsHaveTimeToEnd(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		want := map[string]float64{"default": 30, "minimal": 30, "hpa": 723.5, "keda": 120}[set]
		for _, d := range of[*apps.Deployment](r) {
			spec := d.Spec.Template.Spec
			c, grace := spec.Containers[0], *spec.TerminationGracePeriodSeconds
			preStop := int64(0)
			if c.Lifecycle != nil {
				preStop = c.Lifecycle.PreStop.Sleep.Seconds
			}
			require.Equal(t, preStop+int64(math.Ceil(want))+30, grace, role(d))
			require.Equal(t, role(d) == "api" && set != "minimal", preStop > 0, "%s: only pods behind a balancer have a preStop pause", role(d))
			for _, v := range c.Env {
				if v.Name == "FORGERUN_SHUTDOWN_GRACE" || v.Name == "FORGERUN_WEBHOOK_TIMEOUT" {
					d, err := time.ParseDuration(v.Value)
					require.NoError(t, err)
					require.Greater(t, grace, preStop+int64(math.Ceil(d.Seconds())), v.Name)
				}
			}
			require.Zero(t, d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue())
		}
	})
}

// The migration runs before helm creates the chart's objects, so the migration must not refer to these objects.
func TestMigrationNeedsNoObjectsOfTheRelease(t *testing.T) {
	eachSet(t, func(t *testing.T, set string, r release) {
		jobs := of[*batch.Job](r)
		require.Equal(t, set == "minimal", len(jobs) == 0)
		for _, j := range jobs {
			require.Equal(t, "pre-install,pre-upgrade", j.Annotations["helm.sh/hook"])
			require.Equal(t, "before-hook-creation,hook-succeeded", j.Annotations["helm.sh/hook-delete-policy"])
			spec := j.Spec.Template.Spec
			require.Empty(t, spec.ServiceAccountName)
			require.Empty(t, spec.Volumes)
			require.Empty(t, spec.Containers[0].EnvFrom)
			require.Equal(t, set == "keda", slices.Equal([]string{"migrate", "--to", "9"}, spec.Containers[0].Args))
			require.Less(t, *j.Spec.ActiveDeadlineSeconds, int64(300), "shorter than helm's timeout")
		}
		for _, o := range r {
			_, isJob := o.(*batch.Job)
			require.Equal(t, isJob, o.GetAnnotations()["helm.sh/hook"] != "", o.GetName())
		}
	})
}

// A role's own values override the common values, even if they are false or zero.
func TestRolesOwnValuesWin(t *testing.T) {
	t.Parallel()
	r := render(t, "hpa")
	budgets := of[*policy.PodDisruptionBudget](r)
	require.Equal(t, "25%", budgets["runner-api"].Spec.MaxUnavailable.String())
	require.Equal(t, "1", budgets["runner-worker"].Spec.MaxUnavailable.String())
	require.NotContains(t, budgets, "runner-deliverer")
	worker := r.pods(t)["worker"].Spec.Containers[0]
	require.Equal(t, int64(1<<30), worker.Resources.Limits.Memory().Value())
	limits := environment(worker)
	require.Equal(t, "921MiB", limits["GOMEMLIMIT"])
	require.Equal(t, []string{"2000000", "0.5"}, []string{limits["FORGERUN_MAX_QUEUE_SIZE"], limits["FORGERUN_TIME_SCALE"]})
	require.Zero(t, *of[*apps.Deployment](render(t, "minimal"))["demo-forgerun-worker"].Spec.Replicas)
	for role, pod := range r.pods(t) {
		require.Equal(t, []core.LocalObjectReference{{Name: "registry"}}, pod.Spec.ImagePullSecrets, role)
		require.True(t, strings.HasSuffix(pod.Spec.Containers[0].Image, "@sha256:"+strings.Repeat("0123456789abcdef", 4)), role)
	}
}

func (r release) requireSelects(t *testing.T, s *meta.LabelSelector, want ...string) {
	t.Helper()
	selector, err := meta.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	var found []string
	for role, pod := range r.pods(t) {
		if selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, role)
		}
	}
	require.ElementsMatch(t, want, found, "%v", s)
	other := labels.Set(maps.Clone(r.pods(t)[want[0]].Labels))
	other["app.kubernetes.io/instance"] = "another"
	require.False(t, selector.Matches(other), "%v: pods of another release", s)
}
