package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func releaseServer(t *testing.T, checksum func(archive []byte) string) string {
	t.Helper()
	program := readText(t, testkit.Program(t, "forgerun"))
	var archive bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&archive, gzip.NoCompression)
	require.NoError(t, err)
	files := tar.NewWriter(compressed)
	require.NoError(t, files.WriteHeader(&tar.Header{Name: "forgerun_9.8.7/forgerun", Mode: 0o755, Size: int64(len(program))}))
	_, err = io.WriteString(files, program)
	require.NoError(t, err)
	require.NoError(t, files.Close())
	require.NoError(t, compressed.Close())
	name := fmt.Sprintf("forgerun_9.8.7_%s_%s.tar.gz", runtime.GOOS, runtime.GOARCH)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/latest":
			http.Redirect(w, r, "/tag/v9.8.7", http.StatusFound)
		case "/tag/v9.8.7":
		case "/download/v9.8.7/" + name:
			_, _ = w.Write(archive.Bytes())
		case "/download/v9.8.7/checksums.txt":
			_, _ = fmt.Fprintf(w, "%s  %s\n", checksum(archive.Bytes()), name)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func sha256Of(archive []byte) string { return fmt.Sprintf("%x", sha256.Sum256(archive)) }

func throttledTarget(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			w.Header().Set("Location", "/tasks/1")
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, `{"id":"1","status":"running"}`)
			return
		}
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const actionCommand = `curl -sf -X POST "$FORGERUN_URL/tasks" -H 'Content-Type: application/json' -d '{}' && ` +
	`for n in 1 2 3; do curl -s "$FORGERUN_URL/tasks/1"; done`

func action(t *testing.T, variables map[string]string) (code int, output string, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	script, err := filepath.Abs("../../scripts/action.sh")
	require.NoError(t, err)
	c := exec.Command(script)
	c.Dir = dir
	c.Env = append(os.Environ(), "RUNNER_TEMP="+dir, "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY="+dir+"/summary.md",
		"GITHUB_OUTPUT="+dir+"/output")
	for name, value := range variables {
		c.Env = append(c.Env, name+"="+value)
	}
	text, err := c.CombinedOutput()
	if err != nil {
		require.IsType(t, &exec.ExitError{}, err, string(text))
	}
	files = map[string]string{}
	for _, name := range []string{"summary.md", "output", "forgerun-verdict/verdict.xml", "forgerun-verdict/verdict.html", "known.yaml"} {
		content, _ := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(content)
	}
	return c.ProcessState.ExitCode(), string(text), files
}

// The action downloads the latest release, judges the command, and reports to GitHub. With a baseline that lists the client's mistakes,
// the action passes.
func TestAction(t *testing.T) {
	t.Parallel()
	variables := map[string]string{
		"RELEASES_URL": releaseServer(t, sha256Of), "TARGET": throttledTarget(t), "COMMAND": actionCommand, "PROFILES": "none", "VERSION": "main",
		"FLAGS": "--strict",
	}
	code, output, files := action(t, variables)
	require.Equal(t, 1, code, output)
	require.Contains(t, output, "::error title=ForgeRun backoff::")
	require.Contains(t, files["summary.md"], "## ForgeRun: FAILED: 1 error")
	require.Contains(t, files["summary.md"], "| FAIL | `backoff` |")
	require.Contains(t, files["summary.md"], "rfc9110")
	require.Equal(t, "verdict=failed\n", files["output"])
	require.Contains(t, files["forgerun-verdict/verdict.xml"], "<testsuite")
	require.Contains(t, files["forgerun-verdict/verdict.html"], "<html")

	variables["FLAGS"], variables["BASELINE"] = "--update-baseline --strict", "known.yaml"
	code, output, files = action(t, variables)
	require.Equal(t, 0, code, output)
	require.Contains(t, files["known.yaml"], `  - {profile: "none", rule: backoff}`)
	require.Contains(t, files["summary.md"], "| KNOWN | `backoff` |")
	require.Equal(t, "verdict=passed_with_warnings\n", files["output"])
}

func TestActionChecksum(t *testing.T) {
	t.Parallel()
	wrong := func([]byte) string { return strings.Repeat("0", 64) }
	code, output, files := action(t, map[string]string{
		"RELEASES_URL": releaseServer(t, wrong), "TARGET": throttledTarget(t), "COMMAND": actionCommand, "VERSION": "v9.8.7",
	})
	require.NotZero(t, code)
	require.Contains(t, output, "::error title=ForgeRun::The checksum of forgerun_9.8.7_")
	require.Empty(t, files["summary.md"])
}
