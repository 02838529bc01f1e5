package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

const examples = "../../examples"

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}

func pythonWith(t *testing.T, modules, packages string) string {
	t.Helper()
	requirePython(t)
	for _, program := range []string{"python3", "/usr/bin/python3"} { // the system's Python may not be first in PATH
		if exec.CommandContext(t.Context(), program, "-c", "import "+modules).Run() == nil {
			return program
		}
	}
	require.Empty(t, os.Getenv("CI"), "scripts/setup.sh ci installs %s", packages)
	t.Skip("Python has no " + packages)
	return ""
}

func packages(t *testing.T) string {
	t.Helper()
	dist, out := t.TempDir(), t.TempDir()
	folder := filepath.Join(dist, "forgerun_"+runtime.GOOS+"_"+runtime.GOARCH)
	require.NoError(t, os.Mkdir(folder, 0o755))
	require.NoError(t, os.Symlink(testkit.Program(t, "forgerun"), filepath.Join(folder, "forgerun")))
	runIn(t, ".", nil, "python3", "../../packages/build.py", dist, out, "v9.8.7-next")
	return out
}

func tryIn(t *testing.T, dir string, variables []string, name string, arguments ...string) (string, error) {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, arguments...)
	c.Dir, c.Env = dir, append(os.Environ(), variables...)
	text, err := c.CombinedOutput()
	return string(text), err
}

func glob(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.Len(t, found, 1, pattern)
	return found[0]
}

func venv(t *testing.T, out string) string {
	t.Helper()
	dir := t.TempDir()
	program := pythonWith(t, "pytest, xdist, venv, ensurepip", "pytest, pytest-xdist and venv")
	runIn(t, ".", nil, program, "-m", "venv", "--system-site-packages", dir)
	bin := filepath.Join(dir, "bin")
	runIn(t, ".", nil, filepath.Join(bin, "pip"), "install", "-q", "--no-index", "--disable-pip-version-check", glob(t, out+"/*.whl"))
	return bin
}

func orderServer(t *testing.T) string {
	t.Helper()
	var orders atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			w.Header().Set("Location", fmt.Sprintf("/orders/%d", orders.Add(1)))
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"status":"running"}`)
		case r.URL.Query().Has("busy"):
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusTooManyRequests)
		default:
			_, _ = io.WriteString(w, `{"status":"succeeded"}`)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestPackages packs the program only once, because this takes ten seconds.
func TestPackages(t *testing.T) {
	t.Parallel()
	out := packages(t)
	bin := venv(t, out)
	t.Run("plugins", func(t *testing.T) { t.Parallel(); testPlugins(t, out, bin) })
	t.Run("program", func(t *testing.T) { t.Parallel(); testPackagedProgram(t, out, bin) })
}

// testPlugins runs a suite with three correct and two incorrect clients. In each test framework, exactly the tests with incorrect clients
// fail, even in parallel processes. Each failure names the broken rule and its standard.
func testPlugins(t *testing.T, out, bin string) {
	target := orderServer(t)
	here, err := filepath.Abs("testdata/plugins")
	require.NoError(t, err)
	node := nodeModules(t, out)
	for _, name := range []string{"right.test.js", "wrong.test.js"} {
		copyFile(t, filepath.Join(here, name), filepath.Join(node, name))
	}
	for name, command := range map[string][]string{
		"pytest": {filepath.Join(bin, "python"), "-m", "pytest", "-p", "no:cacheprovider", "-n", "2", "-rA", here},
		"jest":   {"node", node + "/node_modules/jest/bin/jest.js", "--rootDir", node, "--maxWorkers", "2", "--verbose"},
		"vitest": {"node", node + "/node_modules/vitest/vitest.mjs", "run", "--root", node, "--reporter", "verbose"},
		"go":     {"go", "test", "-count=1", "-v", "-tags", "plugins", "./testdata/plugins"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := "."
			if command[0] == "node" {
				dir = node
			}
			text, err := tryIn(t, dir, []string{
				"FORGERUN_TARGET=" + target, "FORGERUN_PROFILE=none", "FORGERUN_STRICT=1", "PYTHONDONTWRITEBYTECODE=1",
			}, command[0], command[1:]...)
			require.IsType(t, &exec.ExitError{}, err, text)
			for _, test := range []struct{ pattern, result string }{
				{`(?i)(PASSED|--- PASS|✓|√).*right.?(1|one)`, "passed"}, {`(?i)(PASSED|--- PASS|✓|√).*right.?(2|two)`, "passed"},
				{`(?i)(PASSED|--- PASS|✓|√).*right.?(3|three)`, "passed"},
				{`(?i)(FAILED|--- FAIL|✕|×).*one.?key.?for.?two`, "failed"}, {`(?i)(FAILED|--- FAIL|✕|×).*no.?pause`, "failed"},
			} {
				require.Regexp(t, test.pattern, text)
			}
			require.Equal(t, strings.Count(text, "same-body: "), strings.Count(text, "backoff: "), text)
			require.NotZero(t, strings.Count(text, "backoff: "), text)
			require.Contains(t, text, "rfc-editor.org/rfc/rfc9110", "the standard")
			require.Contains(t, text, "POST /orders, response: 202", "the evidence")
		})
	}
}

func nodeModules(t *testing.T, out string) string {
	t.Helper()
	dir, source := t.TempDir(), filepath.Join(examples, "javascript")
	requireNodePackages(t, source)
	modules, err := filepath.Abs(filepath.Join(source, "node_modules"))
	require.NoError(t, err)
	installed, err := os.ReadDir(modules)
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "node_modules"), 0o755))
	for _, m := range installed {
		require.NoError(t, os.Symlink(filepath.Join(modules, m.Name()), filepath.Join(dir, "node_modules", m.Name())))
	}
	for _, name := range []string{"package.json", "vitest.config.mjs"} {
		copyFile(t, filepath.Join(source, name), filepath.Join(dir, name))
	}
	for archive, to := range map[string]string{"forgerun-9*.tgz": "forgerun", "forgerun-*-*64-*.tgz": "@forgerun/" + npmPlatform()} {
		to = filepath.Join(dir, "node_modules", to)
		require.NoError(t, os.MkdirAll(to, 0o755))
		runIn(t, ".", nil, "tar", "-xzf", glob(t, filepath.Join(out, archive)), "-C", to, "--strip-components=1")
	}
	return dir
}

func npmPlatform() string {
	return runtime.GOOS + "-" + map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
}

// testPackagedProgram runs the programs in the npm package and in the wheel. They judge a client of an API other than ForgeRun's.
func testPackagedProgram(t *testing.T, out, bin string) {
	target := throttledTarget(t)
	verdict := []string{"verdict", "--target", target, "--profile", "none", "--strict", "--", "sh", "-c", actionCommand}
	t.Run("npx", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		runIn(t, dir, nil, "npm", "install", "--offline", "--no-audit", "--no-fund",
			glob(t, out+"/forgerun-9*.tgz"), glob(t, out+"/forgerun-*-*64-*.tgz"))
		text, err := tryIn(t, dir, nil, "npx", append([]string{"--offline", "forgerun"}, verdict...)...)
		requireBackoff(t, text, err)
	})
	t.Run("pip", func(t *testing.T) {
		t.Parallel()
		text, err := tryIn(t, t.TempDir(), nil, filepath.Join(bin, "forgerun"), verdict...)
		requireBackoff(t, text, err)
	})
}

func requireBackoff(t *testing.T, text string, err error) {
	t.Helper()
	failed := &exec.ExitError{}
	require.ErrorAs(t, err, &failed, text)
	require.Equal(t, 1, failed.ExitCode(), text)
	require.Contains(t, text, "FAIL")
	require.Contains(t, text, "backoff")
}
