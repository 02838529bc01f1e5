package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
)

func operatorCommands(sh *shell) {
	t := sh.t
	failed := sh.id("jobs", "submit", "FAIL_AFTER_RETRYABLE")
	sh.exits(command.Failed, "", "jobs", "wait", failed)
	sh.exits(command.Failed, "FORGERUN_ADMIN_TOKEN", "admin", "jobs", "list")
	sh.env["FORGERUN_ADMIN_TOKEN"] = "ann:" + operatorToken + ",bob:another-token-of-bob"
	chosen := []string{"--state", "FAILED", "--client", sh.client}
	bulk := func(more ...string) []string {
		return slices.Concat([]string{"admin", "bulk", "start", "retry"}, chosen, more)
	}

	require.Contains(t, sh.ok(append([]string{"admin", "jobs", "list"}, chosen...)...), failed)
	require.Equal(t, "1\n", sh.ok(append([]string{"admin", "jobs", "count", "-q"}, chosen...)...))
	require.Contains(t, sh.ok("admin", "jobs", "get", failed, "-o", "json"), "attempts_log")
	require.Contains(t, sh.ok("admin", "workers"), "ALIVE")
	require.Contains(t, sh.ok("admin", "failures"), "FAIL_AFTER_RETRYABLE")
	require.Contains(t, sh.ok("admin", "queues"), "QUEUED")
	require.Contains(t, sh.ok(bulk("--dry-run")...), "WOULD CHANGE")
	id := sh.id(bulk("--wait", "--timeout", "1m")...)
	require.Contains(t, sh.ok("admin", "bulk", "get", id), "DONE")
	require.Contains(t, sh.ok("admin", "bulk", "list"), id)
	require.Contains(t, sh.ok("admin", "bulk", "items", id), failed)
	sh.exits(command.Failed, "RFA_JOB_CONFLICT", "admin", "bulk", "abort", id)
	sh.exits(command.WrongUsage, "pass a filter", "admin", "bulk", "start", "delete")
	sh.exits(command.Failed, "", "jobs", "wait", failed)
	sh.ok("admin", "jobs", "retry", failed, "--override")
	sh.exits(command.Failed, "", "jobs", "wait", failed)
	require.Contains(t, sh.ok("admin", "jobs", "cancel", failed), "FAILED")
	sh.ok("admin", "jobs", "delete", failed)
	sh.exits(command.Failed, "not found", "admin", "jobs", "get", failed)
	require.Regexp(t, `ann +delete_job +`+failed, sh.ok("admin", "audit", "--operator", "ann", "--target", failed))

	sh.exits(command.WrongUsage, "--reason", "admin", "pause", "all")
	sh.exits(command.WrongUsage, "name the target to pause", "admin", "pause", "worker", "x", "--reason", "r")
	sh.exits(command.WrongUsage, "name the target to drain", "admin", "drain", "all", "x", "--reason", "r")
	sh.exits(command.WrongUsage, "/target", "admin", "pause", "kind", "NOTHING", "--reason", "r")
	pause := sh.id("admin", "pause", "kind", "CPU_BURST", "--reason", "too hot")
	require.Contains(t, sh.ok("admin", "pauses"), "too hot")
	sh.ok("admin", "resume", pause)
	require.NotContains(t, sh.ok("admin", "pauses"), pause)
	sh.exits(command.Failed, "No pause with this id was found", "admin", "resume", pause)

	// Only the command that creates a key prints the key's secret.
	made := sh.object("clients", "create", "--with-key")
	client, key, secret := made["client_id"].(string), made["key_id"].(string), made["api_key"].(string)
	sh.stack.secret(secret)
	other := &shell{t: t, env: merge(sh.env, env{"FORGERUN_API_KEY": secret})}
	other.ok("jobs", "list")
	sh.secrets = append(sh.secrets, secret)
	require.Contains(t, sh.ok("clients", "list"), client)
	require.Contains(t, sh.ok("clients", "get", client), client)
	require.Contains(t, sh.ok("keys", "list", client), key)
	code, _, stderr := sh.run(t.Context(), "keys", "create", client)
	require.Zero(t, code)
	require.Contains(t, stderr, "Use --rotate to replace it")
	renewed := other.value("api_key", "keys", "renew", client).(string)
	sh.stack.secret(renewed)
	require.NotEqual(t, secret, renewed)
	sh.ok("keys", "revoke", client, key)
	eventually(t, "the key is refused", func() bool { code, _, _ := other.run(t.Context(), "jobs", "list"); return code != 0 })
	other.exits(command.Failed, "RFA_AUTH_API_KEY_DISABLED", "jobs", "list")

	// Without an admin URL, the commands use the public API, with fewer permissions.
	delete(sh.env, "FORGERUN_ADMIN_URL")
	public := sh.value("api_key", "clients", "create", "--with-key").(string)
	require.NotEmpty(t, public)
	sh.stack.secret(public)
	sh.exits(command.WrongUsage, "--admin-url", "clients", "list")
}

func TestConsoleIsOpened(t *testing.T) {
	t.Parallel()
	seen := filepath.Join(t.TempDir(), "seen")
	browser := filepath.Join(t.TempDir(), "browser")
	require.NoError(t, os.WriteFile(browser, []byte("#!/bin/sh\necho \"$1\" > "+seen+"\n"), 0o700))
	sh := &shell{t: t, env: env{"BROWSER": browser, "FORGERUN_ADMIN_URL": "http://127.0.0.1:9/"}}
	require.Equal(t, "http://127.0.0.1:9/\n", sh.ok("open"))
	opened := readText(t, seen)
	require.Equal(t, "http://127.0.0.1:9/\n", opened)
	sh.env["BROWSER"] = "/does/not/exist"
	sh.ok("open", "--print")
	sh.exits(command.Failed, "open the address above", "open")
	for _, address := range []string{"127.0.0.1:8081", "ftp://x", "http://user:hidden@x"} {
		sh.exits(command.WrongUsage, "must look like http://127.0.0.1:8081", "open", "--admin-url", address)
	}
}

func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	sh := &shell{t: t, env: env{}}
	for shell, check := range map[string]string{"bash": "-n", "zsh": "-n", "fish": "--no-execute"} {
		script := sh.ok("completion", shell)
		require.Contains(t, script, "__complete")
		path := filepath.Join(t.TempDir(), "script")
		require.NoError(t, os.WriteFile(path, []byte(script), 0o600))
		program, err := exec.LookPath(shell)
		if err != nil {
			require.NotEqual(t, "bash", shell, "every development machine has bash")
			continue
		}
		runIn(t, ".", nil, program, check, path)
	}
	require.Contains(t, sh.ok("__complete", "jobs", "sub"), "submit\t")
	require.Contains(t, sh.ok("__complete", "jobs", "list", "--state", ""), "SUCCEEDED")
	require.Contains(t, sh.ok("__complete", "config", ""), "deliverer")
	require.Contains(t, sh.ok("__complete", "jobs", "submit", "payload_s"), "PAYLOAD_SMALL\t")
	require.Contains(t, sh.ok("kinds"), "RETRY_LIMIT_REACHED")
	sh.exits(command.WrongUsage, "there is no command", "completion", "csh")
}

func TestManPages(t *testing.T) {
	t.Parallel()
	sh := &shell{t: t, env: env{}}
	dir := filepath.Join(t.TempDir(), "man")
	sh.ok("man", dir)
	page := readText(t, filepath.Join(dir, "forgerun-jobs-submit.1"))
	require.Contains(t, page, `.TH "FORGERUN-JOBS-SUBMIT" "1"`)
	require.Contains(t, page, "idempotency-key")
}

func interruptCommand(sh *shell) {
	id := sh.id("jobs", "submit", "SUCCESS_FAST", "--in", "1h")
	ctx, stop := context.WithCancel(sh.t.Context())
	defer stop()
	waiting := sh.start(ctx, "jobs", "watch", id)
	eventually(sh.t, "the command watches the job", func() bool { return strings.Contains(waiting.out.String(), "job-created") })
	stop()
	waiting.ends(sh.t, command.Interrupted)
}

// No command shows the keys of contexts.
func TestContexts(t *testing.T) {
	t.Parallel()
	sh := &shell{t: t, secrets: []string{"frk_of-a-context"}, env: env{"HOME": t.TempDir(), "FORGERUN_DATA_DIR": t.TempDir()}}
	sh.ok("contexts", "set", "one", "--url", "http://127.0.0.1:9", "--key", "frk_of-a-context")
	sh.ok("contexts", "set", "two", "--admin-url", "http://127.0.0.1:10")
	require.Regexp(t, `(?m)^one +\* +http://127.0.0.1:9 +true`, sh.ok("contexts", "list"))
	for _, args := range [][]string{{"jobs", "list", "--context"}, {"admin", "jobs", "list", "--context"}, {"contexts", "use"}} {
		require.Equal(t, "one\ntwo\n:4\n", sh.ok(slices.Concat([]string{"__complete"}, args, []string{""})...), args)
	}
	for _, args := range [][]string{{"verdict", "--profile", ""}, {"proxy", "--profile", ""}, {"testbed", "faults", "set", ""}} {
		require.Regexp(t, "^default\nflaky-network\n(.*\n)+:4\n$", sh.ok(append([]string{"__complete"}, args...)...), args)
	}
	sh.exits(command.WrongUsage, "unknown flag: --profile (forgerun jobs list --help)", "jobs", "list", "--profile", "one")
	sh.exits(command.WrongUsage, "unknown flag: --context (forgerun verdict --help)", "verdict", "--context", "one", "--", "true")
	sh.ok("contexts", "use", "two")
	require.Contains(t, sh.ok("open", "--print"), "http://127.0.0.1:10/")
	sh.exits(command.WrongUsage, "there is no context", "contexts", "use", "three")
	sh.exits(command.WrongUsage, "needs --url or --admin-url", "contexts", "set", "three", "--key", "x")
	sh.ok("contexts", "remove", "two")
	require.NotContains(t, sh.ok("contexts", "list"), "two")
}
