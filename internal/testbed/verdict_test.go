package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// Each client submits a job twice with one key. wrongClient breaks the "must" rule same-body, and carelessClient breaks the "should" rule
// no-key-in-url.
const (
	submits        = `submit() { curl -s "$FORGERUN_URL/jobs" -d "$1" -H 'Idempotency-Key: one'; }; `
	rightClient    = submits + `submit '{}'; submit '{}'`
	wrongClient    = submits + `submit '{}'; submit '[]'`
	carelessClient = rightClient + `; curl -s "$FORGERUN_URL/jobs/1?key=k-0123456789abcdef" -H 'Authorization: Bearer k-0123456789abcdef'`
)

func judge(ctx context.Context, t *testing.T, script string, flags ...string) (code int, stdout, stderr string) {
	t.Helper()
	none := filepath.Join(t.TempDir(), "none.json")
	require.NoError(t, os.WriteFile(none, []byte("[]"), 0o600))
	flags = append([]string{"verdict", "--target", endedJobs(t), "--faults", none}, flags...)
	return invokeIn(ctx, append(flags, "--", "sh", "-c", script)...)
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script string
		flags  []string
		code   int
	}{
		"passed":                      {rightClient, nil, exitOK},
		"failed":                      {wrongClient, nil, exitDifferent},
		"rule broken, command failed": {wrongClient + "; exit 3", nil, exitDifferent},
		"only the command failed":     {rightClient + "; exit 3", nil, exitUnusable},
		"complete":                    {rightClient, []string{"--complete"}, exitDifferent},
		"required and missing":        {rightClient, []string{"--require", "same-body,redirects"}, exitDifferent},
		"only reported":               {wrongClient, []string{"--warn", "same-body"}, exitOK},
		"warnings":                    {carelessClient, nil, exitOK},
		"strict":                      {carelessClient, []string{"--strict"}, exitDifferent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := func(name string) string { return filepath.Join(dir, name) }
			flags := slices.Concat(test.flags, []string{"--junit", file("v.xml"), "--html", file("v.html"), "--json-file", file("v.json")})
			code, stdout, stderr := judge(t.Context(), t, "echo 'it runs'; "+test.script, flags...)
			require.Equal(t, test.code, code, stdout+stderr)
			require.Contains(t, stdout, "it runs\n")
			require.Contains(t, stdout, " same-body ")
			for name, want := range map[string]string{
				"v.xml": `none.json, seed 1" tests="`, "v.html": "<!doctype html>", "v.json": `"sessions": [`,
			} {
				text, err := os.ReadFile(file(name))
				require.NoError(t, err)
				require.Contains(t, string(text), want)
			}
		})
	}
}

func TestVerdictAsJSON(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := judge(t.Context(), t, "echo 'it runs'; "+rightClient, "--json")
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stderr, "it runs\n")
	var document struct {
		Verdict  string
		Sessions []any
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &document), stdout)
	require.Equal(t, "passed", document.Verdict)
	require.Len(t, document.Sessions, 1)
}

func TestVerdictWithoutItsFiles(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--json-file", "--junit", "--html"} {
		dir := t.TempDir()
		for _, path := range []string{dir, filepath.Join(dir, "missing", "v")} {
			code, stdout, stderr := judge(t.Context(), t, "echo 'it runs'", flag, path)
			require.Equal(t, exitUnusable, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, flag+": open "+path+": ")
		}
		folder := filepath.Join(dir, "gone")
		path, kept := filepath.Join(folder, "v"), filepath.Join(dir, "kept")
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(kept, []byte("as before"), 0o600))
		script := fmt.Sprintf("cat %[1]q; test ! -d %[2]q || rmdir %[2]q; ", kept, folder)
		code, stdout, stderr := judge(t.Context(), t, script+wrongClient, flag, path, "--seeds", "2")
		require.Equal(t, exitDifferent, code, "the client failed")
		require.Equal(t, 2, strings.Count(stdout, "as before"), "the second run starts: %s", stderr)
		require.Contains(t, stdout, " same-body ", "the verdict is printed")
		require.Contains(t, stderr, path)
	}
	empty, dir := filepath.Join(t.TempDir(), "new"), t.TempDir()
	code, _, _ := invoke(t, "verdict", "--json-file", empty, "--junit", dir, "--", "true")
	require.Equal(t, exitUnusable, code)
	require.NoFileExists(t, empty, "the check leaves no file behind")
}

func TestVerdictUnderSeveralProfiles(t *testing.T) {
	t.Parallel()
	html := filepath.Join(t.TempDir(), "v.html")
	const failsInSecondRun = `for name in test_a test_b; do curl -s "$FORGERUN_URL/jobs" -d '{}' -H "ForgeRun-Session: $name"; done
		test "$(echo x >> "$0"; wc -l < "$0")" -ne 2`
	code, stdout, stderr := invoke(t, "verdict", "--target", endedJobs(t), "--profiles", "none,overloaded", "--seeds", "2", "--seed", "5",
		"--skip", "same-body", "--html", html, "--", "sh", "-c", failsInSecondRun, filepath.Join(t.TempDir(), "runs"))
	require.Equal(t, exitUnusable, code, stdout+stderr)
	require.Contains(t, stderr, "Run 2 of 3: overloaded, seed 5\n"+
		"Run 3 of 3: overloaded, seed 6\n")
	for _, run := range []string{"none +5", "overloaded +5", "overloaded +6"} {
		require.Regexp(t, `\n.* `+run+` +test_a +1 `, stdout)
		require.Regexp(t, `\n.* `+run+` +test_b +1 `, stdout)
	}
	require.NotContains(t, stdout, "same-body")
	index, err := os.ReadFile(html)
	require.NoError(t, err)
	for n := range 6 {
		page := fmt.Sprintf("v-sessions/%d.html", n+1)
		require.Contains(t, string(index), `<a href="`+page+`">`)
		require.FileExists(t, filepath.Join(filepath.Dir(html), page))
	}
	require.Contains(t, stdout, " in 6 sessions\n", "empty sessions without a label do not count")
}

func TestVerdictWithInvalidFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"- match: {operation: submit}\n  effect: {status: 1}\n": "status", "effects: 1": "the file must be an array of rules",
		"- match: {probability: 0.0}\n  effect: {status: 503}\n": "rule 1: /match/probability: must be greater than 0",
		"- match: {nth: 0}\n  effect: {status: 503}\n":           "rule 1: /match/nth: must be greater than 0",
	} {
		faults := filepath.Join(t.TempDir(), "faults.yaml")
		require.NoError(t, os.WriteFile(faults, []byte(text), 0o600))
		code, stdout, stderr := judge(t.Context(), t, "echo 'it runs'", "--faults", faults)
		require.Equal(t, exitUnusable, code)
		require.Empty(t, stdout)
		require.Contains(t, stderr, "--faults "+faults+": ")
		require.Contains(t, stderr, want)
	}
}

func TestReportsArePrivate(t *testing.T) {
	t.Parallel()
	for shared, mode := range map[bool]os.FileMode{false: 0o600, true: 0o644} {
		dir := t.TempDir()
		v := &verdictRun{html: filepath.Join(dir, "v.html"), shared: shared}
		before := filepath.Join(dir, "before.xml")
		require.NoError(t, os.WriteFile(before, []byte("a longer text than the new one"), 0o666))
		require.NoError(t, os.Chmod(before, 0o666))
		require.NoError(t, v.writeFile(before, []byte("new")))
		content, err := os.ReadFile(before)
		require.NoError(t, err)
		require.Equal(t, "new", string(content))
		require.NoError(t, v.writePage(shownSession{page: []byte(`<a href="journal">`), journal: []byte("{}")}, 1))
		require.FileExists(t, filepath.Join(dir, "v.journal.ndjson"))
		require.NoError(t, v.writePage(shownSession{page: []byte("two")}, 2))
		page, err := os.ReadFile(v.pagePath(1))
		require.NoError(t, err)
		require.Equal(t, `<a href="1.journal.ndjson">`, string(page))
		require.NoFileExists(t, filepath.Join(dir, "v.journal.ndjson"))
		for _, path := range []string{before, v.pagePath(1), v.pagePath(2), journalOf(v.pagePath(1)), journalOf(v.pagePath(2))} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), path)
		}
		require.NoError(t, v.writeFile(os.DevNull, []byte("x")))
	}
}

func TestInterruptedVerdict(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	go func() {
		for range time.Tick(10 * time.Millisecond) {
			if _, err := os.Stat(began); err == nil || ctx.Err() != nil {
				break
			}
		}
		interrupt()
	}()
	code, stdout, stderr := judge(ctx, t, wrongClient+fmt.Sprintf("; touch %q; exec sleep 1000", began), "--seeds", "9")
	require.Equal(t, exitInterrupted, code, stderr)
	require.Contains(t, stdout, "FAILED: 1 error\n  must    same-body: ")
	require.NotContains(t, stderr, "Run 2 of 9")
}

func TestVerdictWithStartedService(t *testing.T) {
	t.Parallel()
	program := testkit.Program(t, "forgerun")
	code, stdout, stderr := invoke(t, "verdict", "--forgerun", program, "--set", "FORGERUN_API_KEY_TTL=24h", "--advance", "25h",
		"--profile", "none", "--", "sh", "-c", `while "$0" jobs list; do sleep 0.1; done`, program)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, " WARN   key-renewal")
	for setting, want := range map[string]string{
		"FORGERUN_API_KEY_TTL=soon": `FORGERUN_API_KEY_TTL="soon": must be a duration`,
		"FORGERUN_API_KEY_LIFE=1h":  "unknown variable FORGERUN_API_KEY_LIFE",
	} {
		code, _, stderr = invoke(t, "verdict", "--forgerun", program, "--set", setting, "--", "true")
		require.Equal(t, exitUnusable, code)
		require.Contains(t, stderr, want)
	}
}
