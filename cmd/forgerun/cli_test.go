package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
)

type shell struct {
	t       *testing.T
	stack   *stack
	client  string
	env     env
	secrets []string // secrets that no command may print
}

func (s *shell) run(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	var out, errors bytes.Buffer
	code = run(ctx, args, func(name string) string { return s.env[name] }, nil, &out, &errors)
	for _, secret := range s.secrets {
		require.NotContains(s.t, out.String()+errors.String(), secret, args)
	}
	require.NotContains(s.t, out.String()+errors.String(), "\x1b", "output to a buffer has no colours")
	return code, out.String(), errors.String()
}

func (s *shell) ok(args ...string) string {
	s.t.Helper()
	code, stdout, stderr := s.run(s.t.Context(), args...)
	require.Zero(s.t, code, "%v: %s", args, stderr)
	return stdout
}

func (s *shell) object(args ...string) (object map[string]any) {
	s.t.Helper()
	require.NoError(s.t, json.Unmarshal([]byte(s.ok(append(args, "-o", "json")...)), &object), args)
	return object
}

func (s *shell) value(member string, args ...string) any {
	s.t.Helper()
	return s.object(args...)[member]
}

func (s *shell) id(args ...string) string {
	s.t.Helper()
	return strings.TrimSpace(s.ok(append(args, "-q")...))
}

func (s *shell) exits(want int, sentence string, args ...string) {
	s.t.Helper()
	code, stdout, stderr := s.run(s.t.Context(), args...)
	require.Equal(s.t, want, code, "%v: %s%s", args, stdout, stderr)
	require.Contains(s.t, stderr, sentence, args)
}

const operatorToken = "0123456789abcdef-operator"

func TestCommandLine(t *testing.T) {
	testCommands(t, map[string]func(*shell){
		"jobs": jobCommands, "output": outputFormats, "schedules": scheduleCommands, "operators": operatorCommands,
	})
}

func TestOtherCommands(t *testing.T) {
	testCommands(t, map[string]func(*shell){
		"batches": batchCommands, "testbed": testbedCommands,
		"listen": listenCommand, "listen and run": listenAndRun, "forward": listenAndForward,
		"follow": followEvents, "interrupt": interruptCommand,
		"terminal": watchInTerminal,
	})
}

// The subtests are not parallel, because a parallel subtest waits for the end of all sequential tests.
func testCommands(t *testing.T, parts map[string]func(*shell)) {
	t.Helper()
	s := newStack(t, env{
		"FORGERUN_ADMIN_TOKEN": "ann:" + operatorToken, "FORGERUN_WEBHOOK_BACKOFF_BASE": "50ms", "FORGERUN_TESTBED": "true",
	})
	s.secret(operatorToken)
	api := s.startLeader()
	s.startWorker()
	s.start("deliverer", env{"FORGERUN_PUBLIC_URL": api.url})
	for name, test := range parts {
		t.Run(name, func(t *testing.T) {
			u := s.newUser(api)
			test(&shell{t: t, stack: s, client: u.id, secrets: []string{u.key, operatorToken}, env: env{
				"FORGERUN_URL": api.url, "FORGERUN_API_KEY": u.key, "HOME": t.TempDir(), "FORGERUN_DATA_DIR": t.TempDir(),
				"FORGERUN_ADMIN_URL": api.adminURL(),
			}})
		})
	}
}

func testbedCommands(sh *shell) {
	t := sh.t
	require.Contains(t, sh.ok("testbed", "faults", "set", "overloaded", "--seed", "7"), "RFA_EXEC_QUEUE_FULL")
	file := filepath.Join(t.TempDir(), "faults.json")
	require.NoError(t, os.WriteFile(file, []byte(`[{"match":{"operation":"getJob","nth":1},"effect":{"status":503}}]`), 0o600))
	sh.ok("testbed", "faults", "set", file)
	require.Regexp(t, `operation=getJob +status=503 `, sh.ok("testbed", "faults", "show"))
	sh.ok("testbed", "faults", "clear")
	sh.exits(command.WrongUsage, "profile", "testbed", "faults", "set", "flaky-netwerk")

	session := sh.id("testbed", "sessions", "start", "flaky-network", "--rules", "no-key-in-url")
	require.Contains(t, sh.ok("testbed", "sessions", "list"), "flaky-network")
	sh.ok("jobs", "list")
	require.NotEmpty(t, sh.value("ended_at", "testbed", "sessions", "end", session))
	require.Regexp(t, `^ +1 .* GET /v1/jobs.*: `, sh.ok("testbed", "sessions", "journal", session))
	require.Contains(t, sh.ok("testbed", "sessions", "verdict", session), "1 rule passed.")
	sh.ok("jobs", "submit", "SUCCESS_FAST", "--wait")
	require.Contains(t, sh.ok("testbed", "reset"), "ROWS")
	require.Contains(t, sh.ok("testbed", "clock", "show"), "false")
	sh.exits(command.WrongUsage, "is not a duration", "testbed", "clock", "advance", "tomorrow")
	sh.exits(command.WrongUsage, "is not a time", "testbed", "clock", "set", "tomorrow")
}

func scheduleCommands(sh *shell) {
	t := sh.t
	id := sh.id("schedules", "create", "SUCCESS_FAST", "--cron", "30 4 * * MON", "--time-zone", "Europe/Berlin", "--overlap",
		"skip", "--jitter", "30s", "--name", "weekly", "--params", `{"a": 1}`)
	require.Equal(t, "Europe/Berlin", sh.value("time_zone", "schedules", "get", id))
	require.Len(t, sh.value("next_runs", "schedules", "get", id), 5)
	require.Contains(t, sh.ok("schedules", "list"), "weekly")
	require.Contains(t, sh.ok("schedules", "pause", id), "PAUSED")
	triggered := sh.id("schedules", "trigger", id)
	require.Equal(t, triggered, sh.id("jobs", "list", "--schedule", id))
	require.Contains(t, sh.ok("schedules", "resume", id), "ACTIVE")
	sh.exits(command.WrongUsage, "/cron", "schedules", "create", "--cron", "often")
	sh.exits(command.WrongUsage, "--file contains the whole schedule", "schedules", "create", "X", "--file", "x")
	file := filepath.Join(t.TempDir(), "schedule.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"interval":"1h","job":{"type":"EMIT_EVENT","event":{"name":"tick"}}}`), 0o600))
	require.Equal(t, "1h0m0s", sh.value("interval", "schedules", "create", "--file", file))
	sh.ok("schedules", "delete", id)
	sh.exits(command.Failed, "schedule "+id+" not found", "schedules", "get", id)
	sh.ok("jobs", "wait", triggered)
}

func jobCommands(sh *shell) {
	t := sh.t
	waiting := sh.id("jobs", "submit", "SUCCESS_FAST", "--in", "1h", "--param", "note=nightly", "--param", "n=2")
	require.Equal(t, map[string]any{"note": "nightly", "n": 2.0}, sh.value("params", "jobs", "get", waiting))
	require.Contains(t, sh.ok("__complete", "jobs", "cancel", waiting[:8]), waiting+"\tSUCCESS_FAST, CREATED")
	sh.exits(command.WrongUsage, "--at and --in cannot be combined", "jobs", "submit", "X", "--in", "1h", "--at", "2126-01-01T00:00:00Z")
	require.Equal(t, "DEFERRED", sh.value("type", "jobs", "get", waiting))
	sh.exits(command.TimedOut, "--timeout was reached", "jobs", "wait", waiting, "--timeout", "200ms")
	sh.exits(command.TimedOut, "--timeout was reached", "jobs", "watch", waiting, "--timeout", "200ms")
	require.Contains(t, sh.ok("jobs", "cancel", waiting), "CANCELED")
	sh.exits(command.Canceled, "", "jobs", "wait", waiting)

	done := sh.id("jobs", "submit", "PAYLOAD_SMALL", "--wait", "--correlation-id", "c-1")
	require.Equal(t, "SUCCEEDED", sh.value("state", "jobs", "get", done))
	require.Equal(t, "c-1", sh.value("correlation_id", "jobs", "get", done))
	sh.exits(command.Failed, "", "jobs", "submit", "FAIL_IMMEDIATE", "--watch")
	failed := sh.id("jobs", "list", "--state", "FAILED")
	sh.exits(command.Failed, "", "jobs", "wait", done, failed, waiting)
	sh.exits(command.Failed, "not retryable", "jobs", "retry", failed)
	again := sh.id("jobs", "submit", "RETRY_ON_FAIL")
	sh.exits(command.Failed, "", "jobs", "wait", again)
	require.Contains(t, sh.ok("jobs", "retry", again, "--wait"), "SUCCEEDED")
	require.Contains(t, sh.ok("jobs", "report", again, "--attempt", "1"), "FAILED")
	require.Contains(t, sh.ok("jobs", "events", done), "job.succeeded")
	require.Contains(t, sh.ok("jobs", "logs", done, "--follow"), "job-succeeded")
	require.Contains(t, sh.ok("jobs", "watch", done, "-o", "json"), `"name":"job-succeeded"`)

	file := filepath.Join(t.TempDir(), "result")
	sh.ok("jobs", "result", done, "--to", file)
	content := readText(t, file)
	require.Equal(t, sh.ok("jobs", "result", done), content)
	sh.ok("jobs", "delete", done)
	sh.exits(command.Failed, "RFA_JOB_GONE", "jobs", "get", done)

	order := filepath.Join(t.TempDir(), "job.json")
	require.NoError(t, os.WriteFile(order, []byte(`{"type":"EXECUTE","work_kind":"SUCCESS_FAST","idempotency_key":"order-17"}`), 0o600))
	first := sh.value("job_id", "jobs", "submit", "--file", order)
	code, stdout, stderr := sh.run(t.Context(), "jobs", "submit", "--file", order, "-q")
	require.Zero(t, code)
	require.Equal(t, first, strings.TrimSpace(stdout))
	require.Contains(t, stderr, "was used before")
	sh.ok("jobs", "submit", "--event-name", "order.paid", "--event-data", `{"order": 17}`, "--wait")
	// An event is listed only when all Postgres transactions that began before it have ended.
	eventually(t, "the event is listed", func() bool { return strings.Contains(sh.ok("events"), "event.emitted") })
}

func outputFormats(sh *shell) {
	t := sh.t
	id := sh.id("jobs", "submit", "SUCCESS_FAST", "--in", "1h")
	table := sh.ok("jobs", "list")
	require.Regexp(t, `(?m)^JOB +STATE +KIND +ATTEMPT +AGE +DETAIL$`, table)
	require.Regexp(t, `(?m)^`+id+`  CREATED +SUCCESS_FAST +1/4 `, table)
	require.Contains(t, sh.ok("jobs", "list", "-o", "wide"), "CORRELATION")
	listed := parsed[[]map[string]any](t, sh.ok("jobs", "list", "-o", "json"))
	require.Len(t, listed, 1)
	require.Equal(t, id, listed[0]["job_id"])
	require.Nil(t, listed[0]["started_at"], "an unknown value is null")
	require.Equal(t, 4.0, sh.value("max_attempts", "jobs", "get", id), "a number is not a string")
	sh.exits(command.WrongUsage, "unknown output format", "jobs", "list", "-o", "yaml")
	sh.exits(command.WrongUsage, "neither a time", "jobs", "list", "--after", "yesterday")
	sh.ok("jobs", "list", "--after", "2026-01-31t12:00:00z")
	require.Equal(t, id+"\n", sh.ok("jobs", "list", "--state", "created", "-q"))
	sh.exits(command.WrongUsage, "Usage:", "jobs")
	sh.exits(command.WrongUsage, "must be a JSON object", "jobs", "submit", "--params", "[1]")
	sh.exits(command.WrongUsage, `unknown kind "NO_SUCH_KIND": 'forgerun kinds' lists all kinds`, "jobs", "submit", "NO_SUCH_KIND")
	sh.exits(command.WrongUsage, `unknown kind "SUCCESS_FSAT" (did you mean SUCCESS_FAST?)`, "jobs", "submit", "SUCCESS_FSAT")
	sh.exits(command.WrongUsage, "/execution_at", "jobs", "submit", "SUCCESS_FAST", "--in", "-5m")
	sh.exits(command.WrongUsage, "state: Must be one of", "jobs", "list", "--state", "foo")
	sh.exits(command.WrongUsage, "needs cron or interval", "schedules", "create", "SUCCESS_FAST")
	sh.exits(command.Failed, "job nope not found (RFA_JOB_NOT_FOUND)", "jobs", "get", "nope")
	sh.exits(command.Failed, "to GET http://", "jobs", "get", "nope", "--verbose")
	sh.exits(command.Failed, "FORGERUN_API_KEY", "jobs", "list", "--key", "frk_wrong")
}

func batchCommands(sh *shell) {
	t := sh.t
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "jobs")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	list := write("- type: EXECUTE\n  work_kind: SUCCESS_FAST\n- {type: EXECUTE, work_kind: PAYLOAD_SMALL}\n")
	batch := sh.value("batch_id", "batch", "submit", list, "--wait").(string)
	require.Equal(t, "COMPLETED", sh.value("status", "batch", "get", batch))
	lines := write(`{"type":"EXECUTE","work_kind":"FAIL_IMMEDIATE"}` + "\n" + `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}` + "\n")
	sh.exits(command.Failed, "", "batch", "submit", lines, "--wait")
	code, stdout, _ := sh.run(t.Context(), "batch", "watch", sh.id("batch", "submit", lines))
	require.Equal(t, command.Failed, code)
	require.Regexp(t, `(?m)^0 +[0-9a-f-]{36} +FAILED +The job's input`, stdout, "the failed job is listed")
	refused := write(`{"jobs": [{"type":"EXECUTE","work_kind":"NO_SUCH_KIND"}, {"type":"DEFERRED","execution_at":"2126-01-01T00:00:00Z"}]}`)
	code, stdout, _ = sh.run(t.Context(), "batch", "submit", refused)
	require.Equal(t, command.Failed, code)
	require.Regexp(t, `(?m)^0 +- +REFUSED`, stdout)
	id := strings.TrimPrefix(strings.SplitN(stdout, "\n", 2)[0], "Batch ")
	sh.ok("batch", "cancel", id)
	sh.exits(command.WrongUsage, "no list of jobs", "batch", "submit", write("nothing"))
	sh.exits(command.WrongUsage, "no such file", "batch", "submit", "/does/not/exist")
}
