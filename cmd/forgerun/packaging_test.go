package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

const (
	packaging = "../../packaging/"
	chart     = "../../deploy/chart/" // the chart's own tests are in tools/chart
)

func readText(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}

func unitFiles(t *testing.T) []string {
	t.Helper()
	units, err := filepath.Glob(packaging + "systemd/*.service")
	require.NoError(t, err)
	require.Len(t, units, 4, "api, worker, deliverer, migrate")
	return units
}

func TestPackagingNamesVariablesThatExist(t *testing.T) {
	t.Parallel()
	var cfg Config
	var known []string
	for _, v := range cfg.variables() {
		known = append(known, v.name)
	}
	files := append(unitFiles(t), packaging+"forgerun.env", "../../.env.example", "../../docker-compose.yml", "../../Dockerfile",
		chart+"values.yaml", chart+"templates/_helpers.tpl", chart+"README.md",
		"../../docs/how-to/install.md", "../../docs/how-to/scale.md")
	for _, file := range files {
		names := regexp.MustCompile(`\b(?:FORGERUN|OTEL)_[A-Z_]+\b`).FindAllString(readText(t, file), -1)
		for _, name := range names {
			require.Contains(t, known, name, file)
		}
		require.True(t, len(names) > 0 || strings.Contains(file, "migrate"), file)
	}
}

func directive(unit, name string) (values []string) {
	for _, match := range regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(unit, -1) {
		values = append(values, match[1])
	}
	return values
}

// environmentOf returns the environment that systemd sets for instance 1 of a unit. Values in files override values in the unit. The result
// also has the variables that operators must set.
func environmentOf(t *testing.T, unit string) env {
	t.Helper()
	e := env{}
	for _, text := range append(directive(unit, "Environment"), strings.Split(readText(t, packaging+"forgerun.env"), "\n")...) {
		if name, value, found := strings.Cut(text, "="); found && !strings.HasPrefix(text, "#") {
			e[name] = strings.ReplaceAll(value, "%i", "1")
		}
	}
	filledIn := env{
		"FORGERUN_DATABASE_URL": "postgres://localhost/forgerun", "FORGERUN_MASTER_KEY": masterKey, "FORGERUN_ADMIN_TOKEN": "0123456789abcdef",
	}
	for name, value := range filledIn {
		require.Empty(t, e[name], "packages must not set %s", name)
		e[name] = value
	}
	return e
}

// Each systemd unit starts a role with a valid environment. When systemd stops a role, it waits longer than the role's grace period.
func TestUnitsStartRoles(t *testing.T) {
	t.Parallel()
	admin := map[string]string{}
	for _, file := range unitFiles(t) {
		unit := readText(t, file)
		role := strings.TrimPrefix(directive(unit, "ExecStart")[0], "/usr/bin/forgerun ")
		require.True(t, strings.HasPrefix(filepath.Base(file), "forgerun-"+role), "%s starts %s", file, role)
		environment := environmentOf(t, unit)
		cfg, err := LoadConfig(role, func(name string) string { return environment[name] })
		require.NoError(t, err, file)
		require.Contains(t, directive(unit, "EnvironmentFile"), "/etc/forgerun/forgerun.env")
		require.Equal(t, []string{"forgerun"}, directive(unit, "User"), file)
		if role == "migrate" {
			require.Equal(t, []string{"oneshot"}, directive(unit, "Type"))
			continue
		}
		require.Equal(t, []string{"-/usr/bin/forgerun doctor " + role}, directive(unit, "ExecStartPre"),
			"a problem does not prevent the start")
		require.Contains(t, doctorRoles, role)
		require.Equal(t, []string{"on-failure"}, directive(unit, "Restart"), file)
		require.Equal(t, []string{"0"}, directive(unit, "StartLimitIntervalSec"), "%s: the unit restarts as long as a store is down", file)
		require.Equal(t, []string{"2"}, directive(unit, "RestartPreventExitStatus"), file)
		stop, err := time.ParseDuration(directive(unit, "TimeoutStopSec")[0])
		require.NoError(t, err)
		require.GreaterOrEqual(t, stop, cfg.ShutdownGrace+10*time.Second, "%s: enough time for the grace period and the end of the process", file)
		require.NotContains(t, admin, cfg.AdminAddr, "all roles can run on one machine")
		admin[cfg.AdminAddr] = file
	}
}

func TestSystemdAcceptsUnits(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	self := testkit.Program(t, "forgerun")
	dir, copies := t.TempDir(), []string{}
	for _, file := range unitFiles(t) {
		path := filepath.Join(dir, strings.Replace(filepath.Base(file), "@", "@1", 1))
		require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(readText(t, file), "/usr/bin/forgerun", self)), 0o600))
		copies = append(copies, path)
	}
	out, err := exec.CommandContext(t.Context(), tool, slices.Concat([]string{"verify", "--man=no"}, copies)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
	for _, path := range copies {
		out, err := exec.CommandContext(t.Context(), tool, "security", "--offline=true", "--threshold=20", path).CombinedOutput()
		require.NoError(t, err, "%s: %s", path, out)
	}
}

// Actions are pinned by commit, because a tag can be moved to other code.
func TestActionsArePinnedByCommit(t *testing.T) {
	t.Parallel()
	workflows, err := filepath.Glob("../../.github/workflows/*.yml")
	require.NoError(t, err)
	require.NotEmpty(t, workflows)
	pinned := regexp.MustCompile(`uses: \S+@[0-9a-f]{40} # v\d`)
	for _, file := range workflows {
		for _, line := range regexp.MustCompile(`(?m)^.*uses: .*$`).FindAllString(readText(t, file), -1) {
			require.Regexp(t, pinned, line, file)
		}
	}
}
