package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// manifest is what is checked of a file for Kubernetes.
type manifest struct {
	Kind      string
	Metadata  struct{ Name string }
	Data      env
	Resources []string // of a kustomization
	Spec      struct {
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Grace      int `yaml:"terminationGracePeriodSeconds"`
				Containers []container
			}
		}
		Selector any
	}
}

type container struct {
	Args      []string
	Env       []struct{ Name, Value string }
	Ports     []struct{ Name string }
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
}

type probe struct {
	HTTP struct{ Path, Port string } `yaml:"httpGet"`
}

func manifests(t *testing.T, file string) (all []manifest) {
	t.Helper()
	content, err := os.ReadFile(packaging + "kubernetes/" + file)
	require.NoError(t, err)
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err, file)
		all = append(all, m)
	}
}

// Each Deployment starts a role that takes its environment, is asked on ports that it has, and has the time that it needs to stop.
func TestKubernetesFilesStartRoles(t *testing.T) {
	t.Parallel()
	kustomization := manifests(t, "kustomization.yaml")[0]
	files, err := os.ReadDir(packaging + "kubernetes")
	require.NoError(t, err)
	require.Len(t, kustomization.Resources, len(files)-1, "each file is applied")
	settings := manifests(t, "settings.yaml")[0].Data
	settings["FORGERUN_DATABASE_URL"], settings["FORGERUN_REDIS_URL"] = "postgres://db/forgerun", "redis://redis:6379/0"
	settings["FORGERUN_MASTER_KEY"], settings["FORGERUN_ADMIN_TOKEN"] = masterKey, "0123456789abcdef"
	var roles []string
	for _, file := range kustomization.Resources {
		for _, m := range manifests(t, file) {
			if m.Kind != "Deployment" && m.Kind != "Job" {
				continue
			}
			c := m.Spec.Template.Spec.Containers[0]
			role := c.Args[0]
			roles = append(roles, role)
			environment := env{}
			for name, value := range settings {
				environment[name] = value
			}
			for _, v := range c.Env {
				if v.Value != "" {
					environment[v.Name] = v.Value
				}
			}
			cfg, err := LoadConfig(role, func(name string) string { return environment[name] })
			require.NoError(t, err, file)
			if m.Kind == "Job" {
				continue
			}
			require.Equal(t, "forgerun-"+role, m.Metadata.Name)
			require.Equal(t, role, m.Spec.Template.Metadata.Labels["role"])
			require.Greater(t, time.Duration(m.Spec.Template.Spec.Grace)*time.Second, cfg.ShutdownGrace+10*time.Second)
			for path, p := range map[string]probe{"/healthz": c.Liveness, "/readyz": c.Readiness} {
				require.Equal(t, path, p.HTTP.Path, file)
				require.True(t, slices.ContainsFunc(c.Ports, func(port struct{ Name string }) bool { return port.Name == p.HTTP.Port }), file)
			}
		}
	}
	require.ElementsMatch(t, []string{"migrate", "api", "worker", "webhooks"}, roles)
}
