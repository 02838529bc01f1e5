//go:build slow

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func compileTypeScript(t *testing.T) string {
	t.Helper()
	requireNodePackages(t, typeScript)
	dir := t.TempDir()
	runIn(t, typeScript, nil, "node", "node_modules/typescript/bin/tsc", "--outDir", dir)
	copyFile(t, filepath.Join(typeScript, "package.json"), filepath.Join(dir, "package.json"))
	return dir
}

func serviceFor(t *testing.T) []string {
	t.Helper()
	s := newStackOn(t, repotest.URL(t), hooks)
	api, _, u := s.startDelivering()
	deliveries, err := filepath.Abs("../../client/testdata/deliveries.json")
	require.NoError(t, err)
	return []string{"FORGERUN_URL=" + api.url, "FORGERUN_API_KEY=" + u.key, "DELIVERIES=" + deliveries}
}

func TestTypeScriptLibrary(t *testing.T) {
	t.Parallel()
	dir := compileTypeScript(t)
	files, err := filepath.Glob(filepath.Join(dir, "test", "*.test.js"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	service := serviceFor(t)
	output := runIn(t, dir, service, append([]string{"node", "--test"}, files...)...)
	require.Contains(t, output, "# skipped 0\n", output)

	user := t.TempDir()
	installed := filepath.Join(user, "node_modules", "@forgerun", "client")
	unpackTypeScript(t, dir, installed)
	for n, example := range codeOf(t, typeScript+"/README.md", "ts") {
		example = strings.ReplaceAll(example, `"http://127.0.0.1:8080"`, `process.env.FORGERUN_URL!`) +
			`import { Verifier } from "@forgerun/client/webhooks";` + "\nnew Verifier({ secret: `whsec_${btoa(job.state)}` });\n"
		name := filepath.Join(user, fmt.Sprintf("use%d.mts", n))
		require.NoError(t, os.WriteFile(name, []byte(example), 0o600))
		runIn(t, typeScript, nil, "node", "node_modules/typescript/bin/tsc", "--strict", "--target", "es2022", "--module", "nodenext",
			"--types", "node", "--typeRoots", "node_modules/@types", name)
		require.Equal(t, "SUCCEEDED \n", runIn(t, user, service, "node", strings.TrimSuffix(name, ".mts")+".mjs"))
	}
}

func unpackTypeScript(t *testing.T, compiled, installed string) {
	t.Helper()
	source, packages := t.TempDir(), t.TempDir()
	for _, name := range []string{"package.json", "README.md", "LICENSE"} {
		copyFile(t, filepath.Join(typeScript, name), filepath.Join(source, name))
	}
	require.NoError(t, os.CopyFS(filepath.Join(source, "dist"), os.DirFS(filepath.Join(compiled, "src"))))
	runIn(t, source, nil, "npm", "pack", "--ignore-scripts", "--silent", "--pack-destination", packages)
	packed, err := filepath.Glob(filepath.Join(packages, "*.tgz"))
	require.NoError(t, err)
	require.Len(t, packed, 1)
	require.NoError(t, os.MkdirAll(installed, 0o700))
	runIn(t, installed, nil, "tar", "-xzf", packed[0], "--strip-components=1")
	for _, name := range []string{"dist/index.d.ts", "dist/webhooks.d.ts", "LICENSE", "README.md"} {
		require.FileExists(t, filepath.Join(installed, name))
	}
	require.NoDirExists(t, filepath.Join(installed, "test"))
}

func TestPythonLibrary(t *testing.T) {
	t.Parallel()
	requirePython(t)
	service := serviceFor(t)
	unittest := func(t *testing.T, program string) {
		t.Helper()
		environment := append(slices.Clip(service), "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1")
		output := runIn(t, python, environment, program, "-W", "error::ResourceWarning", "-m", "unittest", "-v")
		require.NotContains(t, output, "FORGERUN_URL is not set")
	}
	t.Run("standard library", func(t *testing.T) { unittest(t, "python3") })
	t.Run("httpx", func(t *testing.T) { unittest(t, pythonWith(t, "httpx", "httpx")) })
	t.Run("annotations", func(t *testing.T) {
		if missing := missingProgram("mypy", "apt-get install mypy"); missing != "" {
			require.Empty(t, os.Getenv("CI"), "%s: scripts/setup.sh ci does", missing)
			t.Skip(missing)
		}
		runIn(t, python, nil, "mypy", "--cache-dir", t.TempDir())
	})
	t.Run("wheel", func(t *testing.T) {
		program := pythonWith(t, "setuptools.build_meta, wheel, venv, ensurepip", "setuptools, wheel and venv")
		wheel := buildWheel(t, program)
		home, dir := filepath.Join(t.TempDir(), "venv"), t.TempDir()
		runIn(t, dir, nil, program, "-m", "venv", home)
		installed := filepath.Join(home, "bin", "python")
		runIn(t, dir, nil, installed, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel)
		for _, example := range codeOf(t, python+"/README.md", "python") {
			example = strings.ReplaceAll(example, `"http://127.0.0.1:8080"`, `os.environ["FORGERUN_URL"]`)
			require.Equal(t, "SUCCEEDED\n", runIn(t, dir, service, installed, "-c", example), example)
		}
	})
}

func buildWheel(t *testing.T, program string) string {
	t.Helper()
	source, dist := t.TempDir(), t.TempDir() // copy the source, because setuptools writes into its folder
	require.NoError(t, os.CopyFS(source, os.DirFS(python)))
	build := "import setuptools.build_meta as b, sys; d = sys.argv[1]; b.build_sdist(d); b.build_wheel(d)"
	runIn(t, source, nil, program, "-c", build, dist)
	wheel, sdist := glob(t, dist+"/*.whl"), glob(t, dist+"/*.tar.gz")
	require.Regexp(t, `/forgerun_client-[0-9.]+-py3-none-any\.whl$`, wheel)
	for file, list := range map[string][]string{wheel: {program, "-m", "zipfile", "--list", wheel}, sdist: {"tar", "-tzf", sdist}} {
		names := runIn(t, dist, nil, list...)
		for _, name := range []string{"forgerun/py.typed", "forgerun/schemas.py", "forgerun/webhooks.py", "LICENSE"} {
			require.Contains(t, names, name, file)
		}
		require.NotContains(t, names, "tests/", file)
	}
	return wheel
}

func codeOf(t *testing.T, page, language string) []string {
	t.Helper()
	var blocks []string
	for _, block := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(readText(t, page), -1) {
		blocks = append(blocks, block[1])
	}
	require.NotEmpty(t, blocks, page)
	return blocks
}

func judgedClients(t *testing.T) map[string][]string {
	t.Helper()
	library := filepath.Join(t.TempDir(), "library")
	runIn(t, ".", nil, "go", "build", "-o", library, "./testdata/library")
	inPython := func(command ...string) []string {
		return append([]string{"env", "-C", python, "PYTHONPATH=src", "PYTHONDONTWRITEBYTECODE=1"}, command...)
	}
	requirePython(t)
	return map[string][]string{
		"go":             {library},
		"typescript":     {"node", filepath.Join(compileTypeScript(t), "test", "program.js")},
		"python":         inPython("python3", "-m", "tests.program"),
		"python-threads": inPython("python3", "-m", "tests.program_async", "threads"),
		"python-httpx":   inPython(pythonWith(t, "httpx", "httpx"), "-m", "tests.program_async", "httpx"),
	}
}

// Correct programs with the libraries break no rule, under any fault profile.
func TestClientLibrariesAreRight(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed)
	for language, program := range judgedClients(t) {
		t.Run(language, func(t *testing.T) {
			parallelIfMany(t)
			for _, profile := range fault.Profiles {
				for seed := 1; seed <= seeds(); seed++ {
					t.Run(fmt.Sprintf("%s/%d", profile, seed), func(t *testing.T) {
						parallelIfMany(t)
						output, v, broken, err := s.runJudged(t, api, program, profile, seed)
						requireEnded(t, profile, output, err)
						require.Empty(t, broken, output)
						learned := slices.ContainsFunc(v.Results, func(r verdict.Result) bool {
							return r.Rule == "deliveries-answered" && r.Status == verdict.OK
						})
						require.True(t, learned || err != nil, "%s\n%+v", output, v)
					})
				}
			}
		})
	}
}

func TestDocumentsPassLinters(t *testing.T) {
	requireNodePackages(t, documentTools)
	api := newStack(t).startAPI()
	require.Empty(t, runIn(t, documentTools, nil, "node", "lint.mjs", api.url))
}
