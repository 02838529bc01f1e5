package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// steering is text that moves the cursor, clears the screen, sets the title, hides or reorders what follows, and forges a line.
const steering = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b]8;;http://evil.test\x1b\\" +
	"\u009b2J\u0085\u202eabc\u2066\u200b\u2028\U000e0041\x7f\r\b\nforged"

// hostileServer answers every request of the public API and the operator API with steering text wherever text may be. For a path
// with "refused", it returns a problem document with the status after that word.
func hostileServer(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refused := regexp.MustCompile(`refused(\d{3})`).FindStringSubmatch(r.URL.Path)
		switch {
		case refused != nil:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(map[string]int{"400": 400, "401": 401, "404": 404, "409": 409}[refused[1]])
			write(t, w, `{"type": $, "title": $, "detail": $, "code": $, "state": $, `+
				`"violations": [{"pointer": $, "detail": $}, {"parameter": $, "detail": $}]}`)
		case r.Header.Get("Last-Event-Id") != "":
			w.WriteHeader(http.StatusNoContent)
		case strings.Contains(r.Header.Get("Accept"), "text/event-stream"):
			w.Header().Set("Content-Type", "text/event-stream")
			for _, event := range []string{"job-progress", "job-succeeded"} {
				_, _ = fmt.Fprintf(w, "id: %s\nevent: %s\ndata: ", event, event)
				write(t, w, `{"event_id": $, "event_name": $, "job_id": $, "jobId": $, "next_state": $, "prev_state": $, "jobStatus": $, "detail": $, `+
					`"title": $, "attempt": 2, "timestamp": "2026-01-31T12:00:00Z", "progress": {"percentage": 7, "phase": $}, "data": {"x": $}}`)
				_, _ = fmt.Fprint(w, "\n\n")
			}
		case r.Method == http.MethodDelete && !strings.HasSuffix(r.URL.Path, "/jobs"):
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/v1/jobs") {
				w.WriteHeader(http.StatusAccepted)
			}
			answer := hostileAnswer(r)
			if asked := asksFor.FindStringSubmatch(r.URL.Path); asked != nil { // the client checks the id
				answer = strings.ReplaceAll(answer, `"`+asked[1]+`_id": $`, `"`+asked[1]+`_id": "`+asked[2]+`"`)
			}
			write(t, w, answer)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

var asksFor = regexp.MustCompile(`^/v1/(?:testbed/)?(job|batch|webhook|schedule|client|session)(?:e?s)/(\w+(?:-1)?)`)

// write writes JSON with steering text in place of each dollar. It escapes only what JSON requires.
func write(t *testing.T, w http.ResponseWriter, text string) {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(steering); err != nil {
		t.Error(err)
	}
	raw := strings.ReplaceAll(strings.TrimSpace(quoted.String()), `\u2028`, "\u2028")
	_, _ = w.Write([]byte(strings.ReplaceAll(text, "$", raw)))
}

// hostileAnswer returns the body of a successful response.
func hostileAnswer(r *http.Request) string {
	const times = `"created_at": "2026-01-31T12:00:00Z", "updated_at": "2026-01-31T12:00:00Z", "next_attempt_at": "2026-01-31T12:00:00Z"`
	state := "$"
	if strings.Contains(r.URL.Path, "ended") || r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/v1/jobs") {
		state = `"SUCCEEDED"`
	}
	one := `{"job_id": $, "work_kind": $, "type": $, "state": ` + state + `, "batch_id": $, "correlation_id": $, ` +
		`"client_id": $, "key_id": $, "api_key": $, "scope": $, "webhook_id": $, "url": $, "events": [$], "description": $, "secret": $, ` +
		`"delivery_id": $, "event_name": $, "event_id": $, "schedule_id": $, "name": $, "cron": $, "interval": $, "time_zone": $, ` +
		`"session_id": $, "label": $, "profile": $, ` +
		`"bulk_id": $, "action": $, "operator": $, "worker_id": $, "pause_id": $, "target": $, "mode": $, "reason": $, "audit_id": $, ` +
		`"target_id": $, "target_type": $, "code": $, "detail": $, "failure_code": $, "outcome": $, "request": $, "answer": $, "fault": $, ` +
		`"breaks": [$], "offset": $, "waiting": {"reason": $, "detail": $}, "failure": {"code": $, "detail": $}, "last_error": {"detail": $}, ` +
		`"progress": {"percentage": 3, "phase": $}, "params": {$: $}, "warnings": [{"pointer": $, "detail": $}], "number": 1, ` +
		`"attempt": 1, ` + times
	ended := strings.Replace(one, `"job_id": $`, `"job_id": "ended-1"`, 1)
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/verdict"):
		return `{"session_id": $, "verdict": $, "why": $, "first": ` + hostileMoment + `, "guess": {"seen": $, "yaml": $}, ` +
			`"profile": $, "label": $, "counts": {"ok": 1, "warn": 0, "fail": 1, "not_tested": 1}, ` +
			`"requests": 3, "faults": [{"of": $, "requests": 3, "fault": $, "times": 1}], "results": [` + hostileRule("fail") + `, ` +
			hostileRule("ok") + `, ` + hostileRule("not_tested") + `]}`
	case strings.HasSuffix(path, "/faults"):
		return `{"rules": [{"rule_id": $, "match": {"operation": $}, "effect": {"detail": $}, "seen": 1, "applied": 1}]}`
	case strings.HasSuffix(path, "/clock"), strings.Contains(path, "/clock/"):
		return `{"now": "2026-01-31T12:00:00Z", "offset": $, "rate": 1, "frozen": false}`
	case strings.HasSuffix(path, "/bulk") && r.Method == http.MethodPost:
		return `{"bulk_id": $, "count": 1, "changes": 1, "more": true, "left": [{"count": 1, "detail": $, "code": $}]}`
	case strings.Contains(path, "/batches"):
		return `{"batch_id": $, "status": "COMPLETED_WITH_ERRORS", "total": 2, "counts": {"succeeded": 1, "failed": 1}, ` +
			`"jobs": [{"item_id": $, "job_id": $, "state": $, "failure": {"detail": $, "code": $}}], ` +
			`"outcome": {"results": [{"itemId": $, "status": $, "detail": $, "processingStage": $}], "jobStatus": "COMPLETED_WITH_ERRORS"}, ` +
			times + `}`
	case strings.HasSuffix(path, "/events") && strings.Contains(path, "/jobs/"), strings.HasSuffix(path, "/v1/events"):
		return `{"data": [{"event_id": $, "event_name": $, "job_id": $, "prev_state": $, "next_state": $, "seq": 1, "attempt": 1, "detail": $, ` +
			`"timestamp": "2026-01-31T12:00:00Z", "data": {"x": $}}], "page": {"next_cursor": null}}`
	case strings.HasSuffix(path, "/report"):
		return `{"job_id": $, "attempt": 1, "outcome": $, "duration_ms": 3, "failure": {"code": $, "detail": $}, "events": [{"event_id": $, ` +
			`"event_name": $, "prev_state": $, "next_state": $, "timestamp": "2026-01-31T12:00:00Z"}]}`
	case path == "/v1/jobs" && r.Method == http.MethodDelete, strings.HasSuffix(path, "/reset"):
		return `{"removed": {$: 3}}`
	case path == "/v1/jobs" && r.Method == http.MethodPost:
		return ended + `}`
	case regexp.MustCompile(`/(jobs|webhooks|deliveries|schedules|sessions|journal|clients|bulk|items|workers|queues|failures|audit|pauses)$`).
		MatchString(path) && r.Method == http.MethodGet:
		return `{"data": [` + one + `, "result": $}], "more": true, "page": {"next_cursor": null}}`
	}
	return one + `, "keys": [{"key_id": $, "scope": $}], "changed": false, "replayed": true}`
}

const hostileMoment = `{"number": 1, "at": "2026-01-31T12:00:00Z", "request": $, "headers": [$], "answer": $, "fault": $}`

func hostileRule(status string) string {
	return `{"rule": $, "title": $, "level": "must", "status": "` + status + `", "quote": $, "see": $, ` +
		`"reason": $, "times": 1, "failures": 1, ` +
		`"fix": {"text": $, "python": $, "typescript": $, "go": $}, "evidence": [{"before": ` + hostileMoment + `, "request": ` + hostileMoment +
		`, "found": $, "expected": $, "times": 2}]}`
}

// attacked contains arguments for each command.
var attacked = map[string][]string{
	"jobs submit": {"SUCCESS_FAST", "--watch"}, "jobs get": {"x", "refused404", "refused400"}, "jobs list": {}, "jobs watch": {"ended"},
	"jobs wait": {"ended"}, "jobs cancel": {"x", "refused409"}, "jobs retry": {"x", "refused409"}, "jobs report": {"x"},
	"jobs result": {"refused404"}, "jobs events": {"x"}, "jobs delete": {"x", "refused409"},
	"batch submit": {"FILE"}, "batch watch": {"x"}, "batch get": {"x"}, "batch cancel": {"x"},
	"schedules create": {"X", "--interval", "1h"}, "schedules list": {}, "schedules get": {"x"}, "schedules pause": {"x"},
	"schedules resume": {"x"}, "schedules trigger": {"x"}, "schedules delete": {"refused404"},
	"events": {"--follow"}, "kinds": {}, "login": {"--url", "URL"}, "contexts set": {"p", "--url", "URL"}, "contexts use": {"refused"},
	"contexts list": {}, "contexts remove": {"refused"},
	"testbed faults set": {"overloaded"}, "testbed faults show": {}, "testbed faults clear": {}, "testbed sessions start": {"x"},
	"testbed sessions end": {"x"}, "testbed sessions verdict": {"x"}, "testbed sessions journal": {"x"}, "testbed sessions list": {},
	"testbed clock show": {}, "testbed clock advance": {"1s"}, "testbed clock set": {"2030-01-31T12:00:00Z"}, "testbed clock freeze": {},
	"testbed clock thaw": {}, "testbed reset": {},
	"webhooks listen": {"--count", "1"}, "webhooks list": {}, "webhooks deliveries": {"x"}, "webhooks test": {"x"},
	"webhooks redeliver": {"x", "y", "refused404"}, "webhooks replay": {"refused400", "--since", "1h"}, "webhooks delete": {"refused404"},
	"admin jobs list": {}, "admin jobs count": {}, "admin jobs get": {"x"}, "admin jobs retry": {"x"}, "admin jobs cancel": {"x"},
	"admin jobs delete": {"refused404"}, "admin queues": {}, "admin workers": {}, "admin failures": {}, "admin audit": {},
	"admin bulk start": {"retry", "--all", "--dry-run"}, "admin bulk list": {}, "admin bulk get": {"x"}, "admin bulk items": {"x"},
	"admin bulk abort": {"x"}, "admin pauses": {}, "admin pause": {"all", "--reason", "x"}, "admin drain": {"all", "--reason", "x"},
	"admin resume": {"refused404"}, "clients create": {"--with-key"}, "clients list": {}, "clients get": {"x"},
	"keys create": {"x"}, "keys renew": {"x"}, "keys list": {"x"}, "keys revoke": {"x", "refused404"}, "open": {"--print"},
	"verdict": {"--url", "URL", "--", "true"}, "search": {"--url", "URL", "--out", "OUT", "--", "true"},
	"proxy": {"--target", "http://" + steering}, "demo": {"--" + steering},
	"simulate run":       {"--url", "URL", "steady", "--jobs", "1", "--duration", "1s"},
	"simulate scenarios": {steering}, "healthcheck": {"--url", "URL/" + "refused404"}, "doctor": {"api"}, "config": {"api"},
	"dev": {steering}, "api": {steering}, "worker": {steering}, "deliverer": {steering}, "migrate": {steering}, "version": {steering},
	"rotate-signing-key": {steering}, "man": {}, "help": {steering},
	"completion bash": {steering}, "completion zsh": {steering}, "completion fish": {steering}, "completion powershell": {steering},
}

// No command passes terminal control sequences from a server, a file or an argument to the terminal. A new command needs a row in attacked.
func TestUntrustedTextCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	url := hostileServer(t)
	file := filepath.Join(t.TempDir(), "jobs.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"type":"EXECUTE"}]`), 0o600))
	environ := env{
		"FORGERUN_URL": url, "FORGERUN_API_KEY": "frk_x", "FORGERUN_ADMIN_URL": url, "FORGERUN_ADMIN_TOKEN": "0123456789abcdef",
		"HOME": t.TempDir(), "FORGERUN_DATA_DIR": t.TempDir(), "FORGERUN_DATABASE_URL": steering, "FORGERUN_REDIS_URL": steering,
	}
	getenv := func(name string) string { return environ[name] }
	replacer := strings.NewReplacer("URL", url, "FILE", file, "OUT", t.TempDir())
	for _, path := range leaves((&program{getenv: getenv}).root()) {
		given, ok := attacked[path]
		require.True(t, ok, "attacked has no arguments for forgerun %s", path)
		var args []string
		for _, arg := range given {
			args = append(args, replacer.Replace(arg))
		}
		for _, form := range []string{"table", "wide", "json"} {
			t.Run(path+" "+form, func(t *testing.T) {
				t.Parallel()
				call := append(strings.Fields(path), args...)
				if c, _, err := (&program{getenv: getenv}).root().Find(strings.Fields(path)); err == nil && c.Flag("output") != nil {
					call = append(strings.Fields(path), append([]string{"-o", form}, args...)...)
				} else if form != "table" {
					return
				}
				var stdout bytes.Buffer
				var stderr testkit.Output
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				ended := make(chan int, 1)
				go func() { ended <- run(ctx, call, getenv, []string{"FORGERUN_" + steering + "=x"}, &stdout, &stderr) }()
				if path == "webhooks listen" {
					eventually(t, "it is registered", func() bool { return strings.Contains(stderr.String(), "Ctrl-C deletes it.") })
					cancel()
				}
				<-ended
				require.NotErrorIs(t, ctx.Err(), context.DeadlineExceeded)
				harmless(t, stdout.String())
				harmless(t, stderr.String())
				require.NotContains(t, "\n"+stdout.String()+"\n"+stderr.String(), "\nforged", "text of others begins no line")
				if form == "json" && path != "open" { // prints only a URL
					for decoder := json.NewDecoder(&stdout); decoder.More(); {
						require.NoError(t, decoder.Decode(new(any)))
					}
				}
			})
		}
	}
}

// leaves returns the paths of runnable commands.
func leaves(c *cobra.Command) (paths []string) {
	for _, below := range c.Commands() {
		paths = append(paths, leaves(below)...)
	}
	path := strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "forgerun"), " ")
	if c.Runnable() && len(paths) == 0 {
		paths = append(paths, path)
	}
	return paths
}

// harmless requires that a text has no terminal control characters except the program's own.
func harmless(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && r != '\t' && (unicode.Is(unicode.C, r) || r == 0x2028 || r == 0x2029) {
			require.Failf(t, "a character steers the terminal", "%U in %q", r, text)
		}
	}
}

// own matches the control sequences of the program, and the line ends of the terminal.
var own = regexp.MustCompile(`\r\n|\r\x1b\[K|\x1b\[(?:0|1|2|3[1236])m`)

// A terminal shows the program's colours, and no colours from the server.
func TestTerminalShowsOnlyOwnColours(t *testing.T) {
	t.Parallel()
	url := hostileServer(t)
	for _, args := range []string{
		"jobs submit SUCCESS_FAST --watch", "jobs watch ended", "jobs list", "jobs list -o json", "jobs get refused404", "events --follow",
		"testbed sessions journal x", "verdict --url " + url + " -- true",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			_, shown, cmd := inTerminal(t, env{"FORGERUN_URL": url, "FORGERUN_API_KEY": "frk_x"}, strings.Fields(args)...)
			_ = cmd.Wait()
			eventually(t, "something is shown", func() bool { return strings.HasSuffix(shown.String(), "\n") })
			text := shown.String()
			require.NotContains(t, text, "\x1b[31mred")
			harmless(t, own.ReplaceAllString(text, "\n"))
		})
	}
	_, shown, cmd := inTerminal(t, env{"FORGERUN_URL": url, "FORGERUN_API_KEY": "frk_x"}, "jobs", "get", "ended")
	if err := cmd.Wait(); err != nil {
		require.NoError(t, err, shown.String())
	}
	eventually(t, "the state has its colour", func() bool { return strings.Contains(shown.String(), "\x1b[32mSUCCEEDED\x1b[0m") })
}
