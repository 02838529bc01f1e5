package testbed

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// thumbnails starts an API that follows no standard: POST returns 201 with an id, and GET shows a state. It has no idempotency keys.
func thumbnails(t *testing.T) string {
	t.Helper()
	var made, read atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, `{"id": "t%d", "phase": "waiting"}`, made.Add(1))
		case read.Add(1)%2 == 1:
			fmt.Fprint(w, `{"id": "t", "phase": "drawing"}`)
		default:
			fmt.Fprint(w, `{"id": "t", "phase": "drawn"}`)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

const order = `
id=$(curl -s --retry 2 --retry-all-errors --retry-delay 0 "$FORGERUN_URL/thumbnails" -d '{"of": "a.png"}' |
  sed 's/.*"id": "\([^"]*\)".*/\1/')
for n in 1 2; do curl -s "$FORGERUN_URL/thumbnails/$id" > /dev/null; done`

func TestUnrecognizedAPIIsDescribed(t *testing.T) {
	t.Chdir(t.TempDir())
	target := thumbnails(t)
	run := func(flags ...string) (code int, stdout string) {
		flags = append([]string{"verdict", "--target", target, "--profile", "none"}, flags...)
		code, stdout, _ = invoke(t, append(flags, "--", "sh", "-c", order)...)
		return code, stdout
	}
	code, stdout := run()
	require.Equal(t, exitUnusable, code, stdout)
	require.Contains(t, stdout, "\nNOTHING JUDGED\nNo submission was recognised: POST /thumbnails answered 201 with {id}. "+
		"Describe the API with --api.\n"+
		"An API description guessed from the traffic is in forgerun-api.yaml: run again with --api forgerun-api.yaml.\n")
	text, err := os.ReadFile(guessFile)
	require.NoError(t, err)
	for _, line := range []string{"- POST /thumbnails\n", "- GET /thumbnails/{id}\n", "- /id\n", "- /phase\n", "- drawn\n"} {
		require.Contains(t, string(text), line)
	}
	require.NotContains(t, string(text), "- drawing\n")

	code, stdout = run("--api", guessFile)
	require.Equal(t, exitOK, code, stdout)
	require.Contains(t, stdout, "\nPASSED: no errors, no warnings\n")

	require.NoError(t, os.WriteFile(guessFile, []byte("name: mine\n"), 0o600))
	code, stdout = run()
	require.Equal(t, exitUnusable, code)
	require.NotContains(t, stdout, "run again with", "a file of the user is not overwritten")
	text, err = os.ReadFile(guessFile)
	require.NoError(t, err)
	require.Equal(t, "name: mine\n", string(text))
}

func TestNothingJudged(t *testing.T) {
	t.Parallel()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	down := socket.Addr().String()
	require.NoError(t, socket.Close())
	up := thumbnails(t)
	for name, c := range map[string]struct {
		target, command, why, note string
	}{
		"the target is down": {"http://" + down, `curl -s "$FORGERUN_URL/thumbnails" -d '{}'; curl -s "$FORGERUN_URL/thumbnails/1"; true`,
			"The target never answered: connection refused at " + down + ".", ""},
		"no request": {up, `true`,
			"No request arrived.", "\nDoes the command use FORGERUN_URL, or a variable of --url-env, instead of " + up + "?\n"},
		"only a health check": {up, `curl -s "$FORGERUN_URL/healthz"`, "No rule about jobs was tested: no job was polled with Retry-After, ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "v.json")
			code, stdout, _ := invoke(t, "verdict", "--target", c.target, "--json-file", file, "--", "sh", "-c", c.command)
			require.Equal(t, exitUnusable, code, stdout)
			require.Contains(t, stdout, "NOTHING JUDGED\n"+c.why)
			require.Contains(t, stdout, c.note)
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var document struct{ Verdict, Why string }
			require.NoError(t, json.Unmarshal(text, &document))
			require.Equal(t, "nothing_judged", document.Verdict)
			require.True(t, strings.HasPrefix(document.Why, c.why), document.Why)
		})
	}
	code, stdout, stderr := invoke(t, "verdict", "--target", up, "--", "no-such-command")
	require.Equal(t, exitUnusable, code)
	require.Empty(t, stdout)
	require.Contains(t, stderr, `NOTHING JUDGED: the command "no-such-command" was not found: executable file not found in $PATH`)
}

func TestDuplicatesFail(t *testing.T) {
	t.Chdir(t.TempDir())
	faults := filepath.Join(t.TempDir(), "faults.json")
	const lost = `[{"match": {"operation": "POST /thumbnails", "nth": 1}, "effect": {"close": "after_commit"}}]`
	require.NoError(t, os.WriteFile(faults, []byte(lost), 0o600))
	code, stdout, _ := invoke(t, "verdict", "--target", thumbnails(t), "--faults", faults, "--", "sh", "-c", order)
	require.Equal(t, exitDifferent, code, stdout)
	require.Contains(t, stdout, "\nFAILED: Your client can create duplicates: 1 error")
	require.Contains(t, stdout, " found:    The client sent the same submission twice, and the service created two jobs: t1 and t2.\n")
	require.Contains(t, stdout, "\n          fix: Retry with the same Idempotency-Key.")

	code, stdout, _ = invoke(t, "verdict", "--target", thumbnails(t), "--faults", faults, "--", "sh", "-c",
		strings.Replace(order, "-d ", "-H 'Idempotency-Key: one' -d ", 1))
	require.NotContains(t, stdout, "create duplicates", code)
}

func TestCommandFailureIsExplained(t *testing.T) {
	t.Parallel()
	faults := filepath.Join(t.TempDir(), "faults.json")
	const busy = `[{"match": {"operation": "GET /thumbnails/{id}", "nth": 2}, "effect": {"status": 503}}]`
	require.NoError(t, os.WriteFile(faults, []byte(busy), 0o600))
	api := filepath.Join(t.TempDir(), "api.yaml")
	description := "submit: [POST /thumbnails]\nread: [\"GET /thumbnails/{id}\"]\njob: {id: [/id], state: [/phase], final: [drawn]}\n"
	require.NoError(t, os.WriteFile(api, []byte(description), 0o600))
	code, stdout, _ := invoke(t, "verdict", "--target", thumbnails(t), "--faults", faults, "--api", api, "--", "sh", "-c",
		strings.Replace(order, "curl -s \"$FORGERUN_URL/thumbnails/$id\"", "curl -sf \"$FORGERUN_URL/thumbnails/$id\"", 1))
	require.Equal(t, exitUnusable, code, stdout)
	require.Regexp(t, `PASSED WITH WARNINGS: 1 warning\n  should  outcome-learned: .*\n.*\nYour command failed \(exit status 22\). `+
		`ForgeRun had injected faults into 1 of 3 requests \(\S+faults.json\): 503. `+
		`The first fault: [0-9:.]+ GET /thumbnails/t1, response: 503; fault: 503 {"status":503}.\n`, stdout)

	code, stdout, _ = invoke(t, "verdict", "--target", thumbnails(t), "--api", api, "--profile", "none", "--", "sh", "-c", order+"; exit 3")
	require.Equal(t, exitUnusable, code, stdout)
	require.Contains(t, stdout, "Your command failed (exit status 3). ForgeRun had injected no faults into its 3 requests.\n")
}

func TestBaselineOfACommand(t *testing.T) {
	t.Parallel()
	path, target := filepath.Join(t.TempDir(), "known.yaml"), endedJobs(t)
	judge := func(script string, flags ...string) (code int, stdout, stderr string) {
		flags = append([]string{"verdict", "--target", target, "--profile", "none", "--baseline", path}, flags...)
		return invoke(t, append(flags, "--", "sh", "-c", script)...)
	}
	code, _, stderr := judge("true")
	require.Equal(t, command.WrongUsage, code)
	require.Contains(t, stderr, "create the file with --update-baseline")
	code, stdout, _ := judge(wrongClient+"; exit 3", "--update-baseline")
	require.Equal(t, exitOK, code, stdout)
	require.Contains(t, stdout, "The rules that this client breaks are now in "+path)
	code, stdout, _ = judge(wrongClient + "; exit 3")
	require.Equal(t, exitOK, code, stdout)
	require.Contains(t, stdout, "\n KNOWN  same-body")
	code, stdout, _ = judge(rightClient)
	require.Equal(t, exitDifferent, code, stdout)
	require.Contains(t, stdout, path+":5: same-body under none is no longer broken: delete this line.\n")
	require.Contains(t, stdout, path+":4: command under none is no longer broken: delete this line.\n")
}

func TestProfileOfARun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flags   []string
		session string
		code    int
		says    string
	}{
		"default": {nil, "1 requests, profile default, seed 1\n", exitUnusable, "Your command failed (exit status 3)."},
		"none":    {[]string{"--profile", "none"}, "1 requests\n", exitUnusable, "Your command failed (exit status 3)."},
		"may fail": {[]string{"--profile", "outage"}, "1 requests, profile outage, seed 1\n", exitOK,
			" That is allowed: this profile refuses some requests permanently."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := append([]string{"verdict", "--target", endedJobs(t)}, c.flags...)
			code, stdout, stderr := invoke(t, append(flags, "--", "sh", "-c", submits+"submit '{}'; exit 3")...)
			require.Equal(t, c.code, code, stdout+stderr)
			require.Contains(t, stdout, c.says)
			require.Contains(t, stdout, c.session)
		})
	}
}

func TestTimeLimit(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := judge(t.Context(), t, "exec sleep 600", "--time-limit", "100ms")
	require.Equal(t, exitUnusable, code, stdout+stderr)
	require.Contains(t, stdout, "Your command failed (the command was stopped after 100ms).")
}
