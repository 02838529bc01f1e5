package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// steering contains terminal control sequences and characters that hide or reorder text.
const steering = "\x1b]0;owned\x07\x1b[2J\x1b[31mred\x1b]8;;http://evil.test\x1b\\" +
	"\u009b2J\u0085\u202eabc\u2066\u200b\u2028\U000e0041\x7f\r\b\nforged"

// hostileServer puts the constant `steering` into every text of every response. Paths with "refused" get a problem document.
func hostileServer(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "refused"):
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusNotFound)
			writeSteering(t, w, `{"type": $, "title": $, "detail": $, "code": $, "state": $, `+
				`"violations": [{"pointer": $, "detail": $}, {"parameter": $, "detail": $}]}`)
		case r.Header.Get("Last-Event-Id") != "":
			w.WriteHeader(http.StatusNoContent)
		case strings.Contains(r.Header.Get("Accept"), "text/event-stream"):
			w.Header().Set("Content-Type", "text/event-stream")
			for _, event := range []string{"job-progress", "job-succeeded"} {
				_, _ = fmt.Fprintf(w, "id: %s\nevent: %s\ndata: ", event, event)
				writeSteering(t, w, `{"event_id": $, "event_name": $, "job_id": $, "jobId": $, "next_state": $, "prev_state": $, "jobStatus": $, `+
					`"title": $, "detail": $, "attempt": 2, "timestamp": "2026-01-31T12:00:00Z", "progress": {"percentage": 7, "phase": $}}`)
				_, _ = fmt.Fprint(w, "\n\n")
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusAccepted)
			}
			writeSteering(t, w, hostileBody(r))
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// writeSteering writes JSON with `steering` in place of each $.
func writeSteering(t *testing.T, w http.ResponseWriter, text string) {
	var quoted bytes.Buffer
	encoder := json.NewEncoder(&quoted)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(steering); err != nil {
		t.Error(err)
	}
	raw := strings.ReplaceAll(strings.TrimSpace(quoted.String()), `\u2028`, "\u2028")
	_, _ = w.Write([]byte(strings.ReplaceAll(text, "$", raw)))
}

func hostileBody(r *http.Request) string {
	const (
		entry = `{"number": 1, "at": "2026-01-31T12:00:00Z", "request": $, "headers": [$], "answer": $, "fault": $, "breaks": [$]}`
		item  = `{"job_id": $, "work_kind": $, "type": $, "state": $, "correlation_id": $, "client_id": $, "webhook_id": $, ` +
			`"delivery_id": $, "url": $, "event_name": $, "schedule_id": $, "name": $, "cron": $, "time_zone": $, "operator": $, "action": $, ` +
			`"worker_id": $, "reason": $, "failure": {"code": $, "detail": $}, "last_error": {"detail": $}, "params": {$: $}, ` +
			`"match": {"operation": $}, "effect": {"detail": $}, "attempt": 1, "created_at": "2026-01-31T12:00:00Z"}`
	)
	path := r.URL.Path
	switch {
	case r.Method == http.MethodPost, strings.HasSuffix(path, "/jobs/x"): // commands ask for the job x, and wait until it has ended
		return strings.Replace(strings.Replace(item, `"job_id": $`, `"job_id": "x"`, 1), `"state": $`, `"state": "SUCCEEDED"`, 1)
	case strings.HasSuffix(path, "/verdict"):
		return `{"session_id": "x", "verdict": $, "why": $, "profile": $, "label": $, "counts": {"fail": 1}, "requests": 3, ` +
			`"faults": [{"of": $, "requests": 3, "fault": $, "times": 1}], "results": [{"rule": $, "title": $, "level": "must", ` +
			`"status": "fail", "quote": $, "see": $, "reason": $, "times": 1, "failures": 1, "fix": {"text": $, "go": $}, ` +
			`"evidence": [{"before": ` + entry + `, "request": ` + entry + `, "found": $, "expected": $}]}]}`
	case strings.HasSuffix(path, "/journal"):
		return entry
	case strings.HasSuffix(path, "/batches/x"):
		return `{"batch_id": "x", "status": $, "total": 1, "counts": {"failed": 1}, "created_at": "2026-01-31T12:00:00Z"}`
	case strings.HasSuffix(path, "/report"):
		return `{"job_id": "x", "attempt": 1, "outcome": $, "failure": {"code": $, "detail": $}, "events": [{"event_id": $, ` +
			`"event_name": $, "prev_state": $, "next_state": $, "timestamp": "2026-01-31T12:00:00Z"}]}`
	}
	return `{"data": [` + item + `], "page": {"next_cursor": null}}`
}

// Commands escape terminal control sequences in texts of the server and in arguments. JSON output is escaped, too.
func TestUntrustedTextCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	url := hostileServer(t)
	environment := env{
		"FORGERUN_URL": url, "FORGERUN_API_KEY": "frk_x", "FORGERUN_ADMIN_URL": url, "FORGERUN_ADMIN_TOKEN": "0123456789abcdef",
		"HOME": t.TempDir(), "FORGERUN_DATA_DIR": t.TempDir(),
	}
	shown := regexp.MustCompile(`\\u001b|\\x1b`)
	for _, call := range []string{
		"jobs submit SUCCESS_FAST --watch", "jobs get x", "jobs get x -o json", "jobs get refused", "jobs list -o wide", "jobs list -o json",
		"jobs report x", "events --follow", "batch get x", "schedules list", "webhooks deliveries x", "testbed faults show",
		"testbed sessions verdict x", "testbed sessions journal x", "admin workers", "admin audit",
		"version " + steering, "proxy --target http://" + steering,
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			_, stdout, stderr := runWith(t, environment, strings.Split(call, " ")...)
			for _, r := range stdout + stderr {
				if r != '\n' && r != '\t' && (unicode.Is(unicode.C, r) || r == 0x2028 || r == 0x2029) {
					require.Failf(t, "a character controls the terminal", "%U in %q", r, stdout+stderr)
				}
			}
			require.NotContains(t, "\n"+stdout+"\n"+stderr, "\nforged", "untrusted text begins no line")
			require.Regexp(t, shown, stdout+stderr)
			if strings.HasSuffix(call, "json") {
				require.True(t, json.Valid([]byte(stdout)), stdout)
			}
		})
	}
}
