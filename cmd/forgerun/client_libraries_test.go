package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job/testbed"
)

// The client libraries in other languages.
const (
	typeScript = "../../clients/typescript"
	python     = "../../clients/python"
)

// requireTypeScript skips the test of somebody who has not installed the compiler.
func requireTypeScript(t *testing.T) {
	t.Helper()
	requireNodePackages(t, typeScript)
}

// requirePython skips the test of somebody who has none.
func requirePython(t *testing.T) {
	t.Helper()
	const remedy = "install Python 3.11 or later"
	missing := missingProgram("python3", remedy)
	if missing == "" && exec.CommandContext(t.Context(), "python3", "-c", "import sys; sys.exit(sys.version_info < (3, 11))").Run() != nil {
		missing = "python3 is too old; " + remedy
	}
	if missing != "" {
		require.Empty(t, os.Getenv("CI"), "%s: scripts/setup.sh ci does", missing)
		t.Skip(missing)
	}
}

// runIn runs a program in a folder and gives what it says.
func runIn(t *testing.T, dir string, environment []string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.Dir, program.Env, program.WaitDelay = dir, append(os.Environ(), environment...), time.Second
	said, err := program.CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(command, " "), said)
	return string(said)
}

// compileTypeScript compiles the library and its tests, and gives the folder.
func compileTypeScript(t *testing.T) string {
	t.Helper()
	requireTypeScript(t)
	dir := t.TempDir()
	runIn(t, typeScript, nil, "node", "node_modules/typescript/bin/tsc", "--outDir", dir)
	copyFile(t, filepath.Join(typeScript, "package.json"), filepath.Join(dir, "package.json"))
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(to, content, 0o600))
}

// serviceFor starts a service with webhooks, and gives where it is and a key.
func serviceFor(t *testing.T) []string {
	t.Helper()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	deliveries, err := filepath.Abs("../../client/testdata/deliveries.json")
	require.NoError(t, err)
	return []string{"FORGERUN_URL=" + api.url, "FORGERUN_API_KEY=" + u.key, "DELIVERIES=" + deliveries}
}

// TestTypeScriptLibrary compiles the library strictly, runs its tests, those against a real service too, and uses the package as npm
// packs it.
func TestTypeScriptLibrary(t *testing.T) {
	t.Parallel()
	dir := compileTypeScript(t)
	files, err := filepath.Glob(filepath.Join(dir, "test", "*.test.js"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	said := runIn(t, dir, serviceFor(t), append([]string{"node", "--test"}, files...)...)
	require.Contains(t, said, "# skipped 0\n", said)

	source, user := t.TempDir(), t.TempDir()
	for _, name := range []string{"package.json", "README.md", "LICENSE"} {
		copyFile(t, filepath.Join(typeScript, name), filepath.Join(source, name))
	}
	require.NoError(t, os.CopyFS(filepath.Join(source, "dist"), os.DirFS(filepath.Join(dir, "src"))))
	runIn(t, source, nil, "npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", user)
	packed, err := filepath.Glob(filepath.Join(user, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, packed, 1)
	installed := filepath.Join(user, "node_modules", "@forgerun", "client")
	require.NoError(t, os.MkdirAll(installed, 0o700))
	runIn(t, installed, nil, "tar", "-xzf", packed[0], "--strip-components=1")
	require.NoError(t, os.WriteFile(filepath.Join(user, "use.mjs"), []byte(`import { ForgeRun } from "@forgerun/client";
import { Verifier } from "@forgerun/client/webhooks";
console.log(typeof ForgeRun, typeof Verifier);`), 0o600))
	require.Equal(t, "function function\n", runIn(t, user, nil, "node", "use.mjs"))
	for _, name := range []string{"dist/index.d.ts", "dist/webhooks.d.ts", "LICENSE", "README.md"} {
		require.FileExists(t, filepath.Join(installed, name))
	}
}

// TestPythonLibrary runs the library's tests, those against a real service too, checks its annotations, and builds a wheel.
func TestPythonLibrary(t *testing.T) {
	t.Parallel()
	requirePython(t)
	environment := append(serviceFor(t), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
	said := runIn(t, python, environment, "python3", "-W", "error::ResourceWarning", "-m", "unittest", "-v")
	require.NotContains(t, said, "FORGERUN_URL is not set")

	t.Run("annotations", func(t *testing.T) {
		if missing := missingProgram("mypy", "apt-get install mypy"); missing != "" {
			require.Empty(t, os.Getenv("CI"), "%s: scripts/setup.sh ci does", missing)
			t.Skip(missing)
		}
		runIn(t, python, nil, "mypy", "--cache-dir", t.TempDir())
	})
	t.Run("wheel", func(t *testing.T) {
		if exec.CommandContext(t.Context(), "python3", "-c", "import setuptools.build_meta, wheel").Run() != nil {
			t.Skip("Python has no setuptools and wheel")
		}
		source, dist := t.TempDir(), t.TempDir() // setuptools writes beside what it builds
		require.NoError(t, os.CopyFS(source, os.DirFS(python)))
		build := "import setuptools.build_meta as b, sys; d = sys.argv[1]; b.build_sdist(d); b.build_wheel(d)"
		runIn(t, source, nil, "python3", "-c", build, dist)
		wheels, err := filepath.Glob(filepath.Join(dist, "forgerun-*-py3-none-any.whl"))
		require.NoError(t, err)
		require.Len(t, wheels, 1)
		names := runIn(t, dist, nil, "python3", "-m", "zipfile", "--list", wheels[0])
		for _, name := range []string{"forgerun/py.typed", "forgerun/schemas.py", "forgerun/webhooks.py"} {
			require.Contains(t, names, name)
		}
		require.NotContains(t, names, "tests/")
		runIn(t, dist, []string{"PYTHONPATH=" + wheels[0]}, "python3", "-c", "import forgerun, forgerun.webhooks")
	})
}

// TestDocumentationTypesOfClients: the types of the libraries are those of the OpenAPI document.
func TestDocumentationTypesOfClients(t *testing.T) {
	t.Parallel()
	for _, library := range []struct {
		name, file, remedy string
		require            func(*testing.T)
		generate           func(file string) (dir string, command []string)
	}{
		{"typescript", typeScript + "/src/openapi.ts", "npm run generate", requireTypeScript, func(file string) (string, []string) {
			return typeScript, []string{"node", "generate.mjs", file}
		}},
		{"python", python + "/src/forgerun/schemas.py", "go generate ./clients/...", func(*testing.T) {}, func(file string) (string, []string) {
			return python, []string{"go", "run", "./generate", file}
		}},
	} {
		t.Run(library.name, func(t *testing.T) {
			t.Parallel()
			library.require(t)
			file := filepath.Join(t.TempDir(), "types")
			dir, command := library.generate(file)
			runIn(t, dir, nil, command...)
			wanted, err := os.ReadFile(file)
			require.NoError(t, err)
			found, err := os.ReadFile(library.file)
			require.NoError(t, err)
			require.Equal(t, string(wanted), string(found), "run %s", library.remedy)
		})
	}
}

// TestClientLibrariesAreRight: a program that uses the library breaks no rule. The Go library is used by examples/go/client, which
// TestExampleClientsAreRight judges. All profiles take minutes: FORGERUN_TESTBED_SEEDS asks for them.
func TestClientLibrariesAreRight(t *testing.T) {
	t.Parallel()
	profiles := testbed.Profiles
	if os.Getenv("FORGERUN_TESTBED_SEEDS") == "" {
		profiles = []testbed.Profile{testbed.FlakyNetwork}
	}
	s := newStack(t, hooks, withTestbed)
	api := s.startLeader()
	s.startWorker()
	s.startWebhooks()
	for language, command := range map[string]func(*testing.T) []string{
		"typescript": func(t *testing.T) []string {
			return []string{"node", filepath.Join(compileTypeScript(t), "test", "program.js")}
		},
		"python": func(t *testing.T) []string {
			requirePython(t)
			return []string{"env", "-C", python, "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1", "python3", "-m", "tests.program"}
		},
	} {
		t.Run(language, func(t *testing.T) {
			parallelIfMany(t)
			program := command(t)
			for _, profile := range profiles {
				for seed := 1; seed <= seeds(); seed++ {
					t.Run(fmt.Sprintf("%s/%d", profile, seed), func(t *testing.T) {
						parallelIfMany(t)
						said, v, broken, err := s.runJudged(t, api, program, profile, seed)
						require.NoError(t, err, said)
						require.Empty(t, broken, said)
						learned := slices.ContainsFunc(v.Results, func(r testbed.RuleResult) bool {
							return r.Rule == "deliveries-answered" && r.Status == testbed.Held
						})
						require.True(t, learned, "%s\n%+v", said, v)
					})
				}
			}
		})
	}
}
