// Package chart tests deploy/chart without a cluster: helm's own library renders it, and the result is decoded into the types of the
// Kubernetes API. The package has its own module, since helm requires hundreds of modules.
package chart_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	root      = "../../"
	chartDir  = root + "deploy/chart"
	namespace = "jobs"
)

var roles = []string{"api", "worker", "deliverer"}

// sets names the values with which the chart is rendered: its defaults, or a file in testdata.
var sets = []string{"default", "minimal", "hpa", "keda"}

var kinds = map[string]func() meta.Object{
	"apps/v1 Deployment":                      func() meta.Object { return &apps.Deployment{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() meta.Object { return &autoscaling.HorizontalPodAutoscaler{} },
	"batch/v1 Job":                            func() meta.Object { return &batch.Job{} },
	"keda.sh/v1alpha1 ScaledObject":           func() meta.Object { return &keda.ScaledObject{} },
	"monitoring.coreos.com/v1 PrometheusRule": func() meta.Object { return &monitoring.PrometheusRule{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() meta.Object { return &monitoring.ServiceMonitor{} },
	"networking.k8s.io/v1 Ingress":            func() meta.Object { return &networking.Ingress{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() meta.Object { return &networking.NetworkPolicy{} },
	"policy/v1 PodDisruptionBudget":           func() meta.Object { return &policy.PodDisruptionBudget{} },
	"v1 ConfigMap":                            func() meta.Object { return &core.ConfigMap{} },
	"v1 Service":                              func() meta.Object { return &core.Service{} },
	"v1 ServiceAccount":                       func() meta.Object { return &core.ServiceAccount{} },
}

type release []meta.Object

// pack writes the chart as "helm package" does: symbolic links become copies of their files.
var pack = sync.OnceValues(func() (archive string, err error) {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return "", err
	}
	return chartutil.Save(c, folder)
})

func load(t *testing.T) *chart.Chart {
	t.Helper()
	archive, err := pack()
	require.NoError(t, err)
	c, err := loader.LoadFile(archive)
	require.NoError(t, err)
	return c
}

func valuesOf(t *testing.T, set string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if set == "default" {
		return values
	}
	content, err := os.ReadFile(filepath.Join("testdata", set+".yaml"))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(content, &values))
	return values
}

// ToRenderValues checks the values against the schema.
func texts(c *chart.Chart, values map[string]any) (map[string]string, error) {
	options := common.ReleaseOptions{Name: "demo", Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// A document with an unknown or repeated member fails the test.
func render(t *testing.T, set string) (r release) {
	t.Helper()
	files, err := texts(load(t), valuesOf(t, set))
	require.NoError(t, err)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(file) != ".yaml" {
			continue
		}
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(files[file], -1) {
			var head meta.TypeMeta
			require.NoError(t, yaml.Unmarshal([]byte(document), &head), "%s:\n%s", file, document)
			if head.Kind == "" {
				require.Empty(t, strings.TrimSpace(regexp.MustCompile(`(?m)^#.*$`).ReplaceAllString(document, "")), file)
				continue
			}
			make := kinds[head.APIVersion+" "+head.Kind]
			require.NotNil(t, make, "%s: %s %s is read by no type", file, head.APIVersion, head.Kind)
			o := make()
			require.NoError(t, yaml.UnmarshalStrict([]byte(document), o), "%s:\n%s", file, document)
			r = append(r, o)
		}
	}
	return r
}

func of[T meta.Object](r release) map[string]T {
	found := map[string]T{}
	for _, o := range r {
		if typed, ok := o.(T); ok {
			found[o.GetName()] = typed
		}
	}
	return found
}

func eachSet(t *testing.T, test func(t *testing.T, set string, r release)) {
	t.Parallel()
	for _, set := range sets {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			test(t, set, render(t, set))
		})
	}
}

func role(o meta.Object) string { return o.GetLabels()["app.kubernetes.io/component"] }

func (r release) pods(t *testing.T) map[string]core.PodTemplateSpec {
	t.Helper()
	found := map[string]core.PodTemplateSpec{}
	for _, d := range of[*apps.Deployment](r) {
		found[role(d)] = d.Spec.Template
	}
	for _, j := range of[*batch.Job](r) {
		found[role(j)] = j.Spec.Template
	}
	require.Subset(t, slices.Collect(maps.Keys(found)), roles)
	return found
}
