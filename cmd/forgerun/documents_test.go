package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const documentTools = "../../tools/documents"

func requireNodePackages(t *testing.T, dir string) {
	t.Helper()
	missing := missingProgram("node", "install Node 18 or later")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); missing == "" && err != nil {
		missing = "run npm ci in " + strings.TrimPrefix(dir, "../../")
	}
	if missing == "" {
		return
	}
	require.Empty(t, os.Getenv("CI"), "%s: scripts/setup.sh ci does", missing)
	t.Skip(missing)
}

const (
	typeScript = "../../clients/typescript"
	python     = "../../clients/python"
)

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

func runIn(t *testing.T, dir string, environment []string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, command[0], command[1:]...)
	program.Dir, program.Env, program.WaitDelay = dir, append(os.Environ(), environment...), time.Second
	output, err := program.CombinedOutput()
	require.NoError(t, err, "%s: %s", strings.Join(command, " "), output)
	return string(output)
}

func TestDocumentationTypesOfClients(t *testing.T) {
	t.Parallel()
	for _, library := range []struct {
		name, file, remedy string
		require            func(*testing.T)
		generate           func(file string) (dir string, command []string)
	}{
		{"typescript", typeScript + "/src/openapi.ts", "npm run generate", func(t *testing.T) { requireNodePackages(t, typeScript) },
			func(file string) (string, []string) { return typeScript, []string{"node", "generate.mjs", file} }},
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
			wanted := readText(t, file)
			found := readText(t, library.file)
			require.Equal(t, wanted, found, "run %s", library.remedy)
		})
	}
}
