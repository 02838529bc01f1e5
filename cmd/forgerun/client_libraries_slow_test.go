//go:build slow

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// compileTypeScript compiles the library and its tests, and gives the folder.
func compileTypeScript(t *testing.T) string {
	t.Helper()
	requireNodePackages(t, typeScript)
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
	s := newStackOn(t, repotest.URL(t), hooks)
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

// TestClientLibrariesAreRight: a program that uses the library breaks no rule. The Go library is used by examples/go/client, which
// TestExampleClientsAreRight judges.
func TestClientLibrariesAreRight(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed)
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
			for _, profile := range fault.Profiles {
				for seed := 1; seed <= seeds(); seed++ {
					t.Run(fmt.Sprintf("%s/%d", profile, seed), func(t *testing.T) {
						parallelIfMany(t)
						said, v, broken, err := s.runJudged(t, api, program, profile, seed)
						require.NoError(t, err, said)
						require.Empty(t, broken, said)
						learned := slices.ContainsFunc(v.Results, func(r verdict.Result) bool {
							return r.Rule == "deliveries-answered" && r.Status == verdict.Held
						})
						require.True(t, learned, "%s\n%+v", said, v)
					})
				}
			}
		})
	}
}

// TestTypeScriptClient makes types of the document of a running service, by two
// generators, compiles a client with them and lets it use the service.
func TestTypeScriptClient(t *testing.T) {
	requireNodePackages(t, documentTools)
	s := newStack(t)
	api := s.startLeader()
	s.startWorker()
	dir := t.TempDir()
	runIn(t, documentTools, nil, "node", "node_modules/openapi-typescript/bin/cli.js", api.url+"/openapi.json",
		"-o", filepath.Join(dir, "types.ts"))
	runIn(t, documentTools, nil, "node", "node_modules/@hey-api/openapi-ts/bin/index.cjs", "-i", api.url+"/openapi.json",
		"-o", filepath.Join(dir, "sdk"), "-c", "@hey-api/client-fetch")
	for _, name := range []string{"program.ts", "tsconfig.json"} {
		content, err := os.ReadFile(filepath.Join(documentTools, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	runIn(t, documentTools, nil, "node", "node_modules/typescript/bin/tsc", "-p", dir)
	said := runIn(t, documentTools, []string{"FORGERUN_URL=" + api.url}, "node", filepath.Join(dir, "js", "program.js"))
	require.True(t, strings.HasSuffix(said, "ok\n"), said)
}

// TestGeneratedGoClient makes a client of the document of a running service, by the generator that people use, and submits a job with it.
func TestGeneratedGoClient(t *testing.T) {
	_, api, u := newService(t)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "oapi"))))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "openapi.yaml"), []byte(u.call(api, "GET", "/openapi.yaml", "").body), 0o600))
	tools, err := filepath.Abs("../../tools/go.mod")
	require.NoError(t, err)
	runIn(t, dir, nil, "go", "tool", "-modfile="+tools, "oapi-codegen", "-config", "oapi-codegen.yaml", "openapi.yaml")
	said := runIn(t, dir, []string{"FORGERUN_URL=" + api.url, "FORGERUN_API_KEY=" + u.key}, "go", "run", ".")
	require.Equal(t, "QUEUED\n", said)
}

// TestDocumentsSuitTheTools: the linters that people use find no error in what the service says of itself.
func TestDocumentsSuitTheTools(t *testing.T) {
	requireNodePackages(t, documentTools)
	api := newStack(t).startAPI()
	require.Empty(t, runIn(t, documentTools, nil, "node", "lint.mjs", api.url))
}
