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

// documentTools is where the programs are that others use with the documents of
// an API.
const documentTools = "../../tools/documents"

// requireDocumentTools skips the test of somebody who has not installed them.
func requireDocumentTools(t *testing.T) {
	t.Helper()
	requireNodePackages(t, documentTools)
}

// requireNodePackages skips the test if the packages of a folder are not installed.
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

// runNode runs a program of the folder of tools and gives what it says.
func runNode(t *testing.T, environment []string, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	node := exec.CommandContext(ctx, "node", arguments...)
	node.Dir, node.Env = documentTools, append(os.Environ(), environment...)
	said, err := node.CombinedOutput()
	require.NoError(t, err, "node %s: %s", strings.Join(arguments, " "), said)
	return string(said)
}

// TestDocumentsSuitTheTools: the linters that people use find no error in what
// the service says of itself.
func TestDocumentsSuitTheTools(t *testing.T) {
	t.Parallel()
	requireDocumentTools(t)
	api := newStack(t).startAPI()
	require.Empty(t, runNode(t, nil, "lint.mjs", api.url))
}

// TestTypeScriptClient makes types of the document of a running service, by two
// generators, compiles a client with them and lets it use the service.
func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	requireDocumentTools(t)
	s := newStack(t)
	api := s.startLeader()
	s.startWorker()
	dir := t.TempDir()
	runNode(t, nil, "node_modules/openapi-typescript/bin/cli.js", api.url+"/openapi.json", "-o", filepath.Join(dir, "types.ts"))
	runNode(t, nil, "node_modules/@hey-api/openapi-ts/bin/index.cjs", "-i", api.url+"/openapi.json",
		"-o", filepath.Join(dir, "sdk"), "-c", "@hey-api/client-fetch")
	for _, name := range []string{"program.ts", "tsconfig.json"} {
		content, err := os.ReadFile(filepath.Join(documentTools, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	runNode(t, nil, "node_modules/typescript/bin/tsc", "-p", dir)
	said := runNode(t, []string{"FORGERUN_URL=" + api.url}, filepath.Join(dir, "js", "program.js"))
	require.True(t, strings.HasSuffix(said, "ok\n"), said)
}
