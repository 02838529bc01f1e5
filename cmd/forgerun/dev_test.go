package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	local "github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/testkit"
)

func devStack(t *testing.T) *stack {
	return newStack(t, env{"FORGERUN_LOG_FORMAT": "json", "FORGERUN_DATA_DIR": t.TempDir()})
}

func visit(t *testing.T, url, host string, header ...string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Host = host
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := (&http.Client{Timeout: patience}).Do(request)
	require.NoError(t, err)
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	if response.StatusCode == http.StatusMisdirectedRequest {
		require.Equal(t, "application/problem+json", response.Header.Get("Content-Type"))
	}
	return response.StatusCode, string(content)
}

// dev refuses requests with another host in the Host header (DNS rebinding).
func TestDevRefusesForeignHosts(t *testing.T) {
	s := devStack(t)
	dev := s.start("dev", env{"FORGERUN_PUBLIC_URL": "https://dev.example.com"})
	dev.waitAPI()
	admin := dev.adminURL()
	for host, status := range map[string]int{
		"localhost:8080": 200, "console.localhost": 200, "[::1]:8080": 200, "dev.example.com": 200, "rebind.example:8080": 421,
	} {
		for _, url := range []string{dev.url + "/healthz", dev.url + "/docs", dev.url + "/openapi.json", admin + "/", admin + "/metrics"} {
			got, body := visit(t, url, host, "X-Forwarded-Host", "localhost")
			require.Equal(t, status, got, "%s for %s: %s", url, host, body)
		}
	}
	got, body := visit(t, dev.url+"/v1/nothing", "rebind.example")
	require.Equal(t, http.StatusMisdirectedRequest, got)
	require.Contains(t, body, "rebind.example")
	for _, site := range []string{"cross-site", "same-site"} {
		got, _ = visit(t, admin+"/metrics", "localhost", "Sec-Fetch-Site", site)
		require.Equal(t, http.StatusForbidden, got)
	}
	_, findings, _ := runWith(t, env{"FORGERUN_DATA_DIR": s.env["FORGERUN_DATA_DIR"]}, "doctor")
	require.Contains(t, findings, "valid for dev", "doctor examines the running dev")
	require.Contains(t, findings, "Redis role: master")
}

func TestDevOnTheNetworkHasAToken(t *testing.T) {
	s := devStack(t)
	var tokens []string
	for range 2 { // the second dev uses the data of the first one
		dev := s.start("dev", env{"FORGERUN_ADMIN_ADDR": "0.0.0.0:0"})
		dev.waitAPI()
		admin := dev.adminURL()
		var shown []string
		eventually(t, "the token is shown", func() bool {
			shown = regexp.MustCompile(`Admin token (\S{40,})`).FindStringSubmatch(dev.stdout.String())
			return shown != nil
		})
		tokens = append(tokens, shown[1])
		require.Contains(t, dev.stdout.String(), "http://127.0.0.1:"+admin[strings.LastIndex(admin, ":")+1:]+"/", "the address can be opened")
		got, _ := visit(t, admin+"/debug/pprof/cmdline", "anything.example")
		require.Equal(t, http.StatusUnauthorized, got)
		got, _ = visit(t, admin+"/debug/pprof/cmdline", "anything.example", "Authorization", "Bearer "+shown[1])
		require.Equal(t, http.StatusOK, got)
		require.NotContains(t, dev.log.String(), shown[1])
		dev.kill()
	}
	require.Equal(t, tokens[0], tokens[1])
}

func startDevWithClient(t *testing.T, dir string, flags ...string) (*proc, *client.Client) {
	t.Helper()
	address, err := local.FreeAddress()
	require.NoError(t, err)
	dev := startProc(t, env{
		"FORGERUN_DATA_DIR": dir, "FORGERUN_HTTP_ADDR": address, "FORGERUN_ADMIN_ADDR": "127.0.0.1:0", "FORGERUN_TIME_SCALE": "0.1",
		"FORGERUN_LOG_FORMAT": "text",
	}, func() []string { return nil }, append([]string{"dev"}, flags...)...)
	var key []string
	eventually(t, "dev is ready", func() bool {
		key = regexp.MustCompile(`API key +(\S+)`).FindStringSubmatch(dev.stdout.String())
		return key != nil
	})
	c, err := client.New(client.Config{URL: "http://" + address, Key: key[1], MaxTries: 30})
	require.NoError(t, err)
	return dev, c
}

// While faults are injected, dev's API stays at the same address, and all jobs end.
func TestDevWithChaos(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	dev, c := startDevWithClient(t, dir, "--chaos", "kill=1s,flush=2s,cut=1s", "--seed", "3")
	banner := len(dev.stdout.String())

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	faults := map[string]bool{}
	for len(faults) < 2 {
		require.NoError(t, ctx.Err(), "faults so far: %v", faults)
		accepted, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: "SUCCESS_FAST"})
		require.NoError(t, err)
		j, err := c.Wait(ctx, accepted.JobID)
		require.NoError(t, err)
		require.True(t, j.Final(), j.State)
		for line := range strings.Lines(dev.stdout.String()[banner:]) {
			if word := strings.Fields(line); len(word) > 2 {
				faults[word[1]] = true
			}
		}
	}
	dev.stop()
	for _, name := range []string{"postgres", "redis"} {
		_, err := os.Stat(dir + "/chaos/" + name)
		require.ErrorIs(t, err, os.ErrNotExist, "only logs are left")
	}
}

func TestDevRestartsKilledStores(t *testing.T) {
	t.Parallel()
	dir := tempDir(t)
	dev, c := startDevWithClient(t, dir)
	accepted, err := c.Submit(t.Context(), client.JobRequest{Type: client.Execute, WorkKind: "SUCCESS_FAST"})
	require.NoError(t, err)
	log := readText(t, filepath.Join(dir, "dev.log"))
	for _, name := range []string{"postgres", "redis"} {
		found := regexp.MustCompile(name + ` is ready".* pid=(\d+)`).FindStringSubmatch(log)
		require.NotNil(t, found, log)
		pid, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	j, err := c.Wait(t.Context(), accepted.JobID)
	require.NoError(t, err)
	require.Equal(t, client.Succeeded, j.State)
	dev.stop()
}

func TestDevChaosUsage(t *testing.T) {
	t.Parallel()
	for want, environment := range map[string]env{
		"to its own Postgres and": required, "can listen only on loopback": {"FORGERUN_HTTP_ADDR": "0.0.0.0:1"},
	} {
		code, _, stderr := runWith(t, environment, "dev", "--chaos", "kill=1s")
		require.Equal(t, 1, code, stderr)
		require.Contains(t, stderr, want)
	}
}

func inTerminal(t *testing.T, environment env, args ...string) (terminal *os.File, shown *testkit.Output, cmd *exec.Cmd) {
	t.Helper()
	self := testkit.Program(t, "forgerun")
	cmd = exec.Command(self, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=xterm"}
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
	require.NoError(t, err)
	shown = new(testkit.Output)
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(shown, terminal)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = terminal.Close()
		<-read
	})
	return terminal, shown, cmd
}

const red = "\x1b[31m"

// In a terminal, dev shows its progress and a coloured line for each job. Commands find the running dev. The error of a second dev in the
// same folder names the first process.
func TestDevInATerminal(t *testing.T) {
	t.Parallel()
	base := tempDir(t)
	dir := filepath.Join(base, "data")
	const token = "0123456789abcdef-of-dev"
	terminal, shown, dev := inTerminal(t, env{
		"FORGERUN_DATA_DIR": dir, "FORGERUN_HTTP_ADDR": "127.0.0.1:0", "FORGERUN_ADMIN_ADDR": "127.0.0.1:0", "FORGERUN_SHUTDOWN_GRACE": "1s",
		"FORGERUN_ADMIN_TOKEN": "ann:" + token,
	}, "dev")
	eventually(t, "dev is ready", func() bool { return strings.Contains(shown.String(), "Stop with Ctrl-C.") })
	require.Contains(t, shown.String(), "\r\x1b[K\x1b[2mStarting Redis ...")
	require.Contains(t, shown.String(), "http://127.0.0.1:")

	info, err := os.Stat(filepath.Join(dir, "dev.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	sh := &shell{t: t, secrets: []string{token}, env: env{"FORGERUN_DATA_DIR": dir, "HOME": t.TempDir()}}
	sh.exits(1, "", "jobs", "submit", "FAIL_IMMEDIATE", "--wait")
	failed := sh.id("jobs", "list")
	require.Contains(t, sh.ok("admin", "jobs", "list"), failed, "the command uses the token from dev.json")
	eventually(t, "the end of the job is shown", func() bool { return strings.Contains(shown.String(), failed) })
	require.Contains(t, shown.String(), red+"FAILED   \x1b[0m  "+failed+"  FAIL_IMMEDIATE")
	require.NotContains(t, shown.String(), "INFO", "the terminal shows no log")

	sh.exits(1, fmt.Sprintf("FORGERUN_DATA_DIR: the folder %s is used by process %d", dir, dev.Process.Pid), "dev")

	before := strings.Count(shown.String(), "\n")
	jobs := filepath.Join(base, "jobs")
	require.NoError(t, os.WriteFile(jobs, []byte(strings.Repeat(`{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`+"\n", 500)), 0o600))
	sh.ok("batch", "submit", jobs, "--wait")
	eventually(t, "the end of each job is shown", func() bool { return strings.Count(shown.String(), "  SUCCESS_FAST") == 500 })
	require.LessOrEqual(t, strings.Count(shown.String(), "\n")-before, 520)

	_, err = terminal.WriteString("?\n")
	require.NoError(t, err)
	eventually(t, "the greeting is shown again", func() bool { return strings.Count(shown.String(), "is ready.") == 2 })
	slow := sh.id("jobs", "submit", "SUCCESS_SLOW")
	eventually(t, "a job is running", func() bool { return sh.value("state", "jobs", "get", slow) == "RUNNING" })
	_, err = terminal.WriteString("\x03") // Ctrl-C
	require.NoError(t, err)
	require.NoError(t, dev.Wait())
	require.Regexp(t, `waiting for 1 job to end, up to 1s; press Ctrl-C again to stop immediately`, shown.String())
	require.Contains(t, readText(t, filepath.Join(dir, "dev.log")), `"next_state":"QUEUED"`, "the file has all lines")
	sh.exits(2, "start forgerun dev in this folder (none is running)", "jobs", "list")
}

func TestTakenAdminAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	address := l.Addr().String()
	sh := &shell{t: t, env: merge(required, env{"FORGERUN_ADMIN_ADDR": address, "FORGERUN_HTTP_ADDR": "127.0.0.1:0"})}
	taken := fmt.Sprintf(": %s is taken by process %d", address, os.Getpid())
	sh.exits(1, "FORGERUN_ADMIN_ADDR"+taken, "api")
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	sh.env = merge(sh.env, env{"FORGERUN_ADMIN_ADDR": "127.0.0.1:0"})
	sh.exits(1, "FORGERUN_HTTP_ADDR"+taken, "api", "--port", port)
	sh.exits(1, "FORGERUN_ADMIN_ADDR"+taken, "api", "--admin-port", port)
}

// A terminal gets colours and a progress bar, unless NO_COLOR forbids the colours.
func watchInTerminal(sh *shell) {
	t := sh.t
	for _, noColor := range []string{"", "1"} {
		job := sh.id("jobs", "submit", "RETRY_ON_FAIL")
		_, shown, cmd := inTerminal(t, merge(sh.env, env{"NO_COLOR": noColor}), "jobs", "watch", job)
		require.Error(t, cmd.Wait())
		require.Equal(t, 1, cmd.ProcessState.ExitCode())
		eventually(t, "the output is complete", func() bool {
			return strings.Count(shown.String(), job) > 3 && strings.Contains(shown.String(), "DETAIL")
		})
		require.Regexp(t, `RUNNING.* \[[#.]{24}\] +\d+%`, shown.String())
		require.Equal(t, noColor == "", strings.Contains(shown.String(), red+"FAILED"))
		require.Equal(t, noColor == "", strings.Contains(shown.String(), "\x1b[3"))
	}
	home := t.TempDir()
	terminal, shown, cmd := inTerminal(t, env{"HOME": home}, "login")
	eventually(t, "login asks for the key", func() bool { return strings.Contains(shown.String(), "API key of ") })
	_, err := terminal.WriteString("frk_half\x03")
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, command.Interrupted, cmd.ProcessState.ExitCode(), "Ctrl-C")
	require.NotContains(t, shown.String(), "frk_half")
	terminal, shown, cmd = inTerminal(t, env{"HOME": home}, "login", "--url", sh.env["FORGERUN_URL"])
	eventually(t, "login asks for the key", func() bool { return strings.Contains(shown.String(), "API key of ") })
	_, err = terminal.WriteString(sh.env["FORGERUN_API_KEY"] + "\n")
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	require.NotContains(t, shown.String(), sh.env["FORGERUN_API_KEY"])
	(&shell{t: t, env: env{"HOME": home, "FORGERUN_DATA_DIR": home}}).ok("jobs", "list")
	_, shown, cmd = inTerminal(t, merge(sh.env, env{"FORGERUN_DATABASE_URL": ""}), "doctor")
	require.Error(t, cmd.Wait())
	eventually(t, "the findings are shown in colour", func() bool { return strings.Contains(shown.String(), red+"FAIL\x1b[0m  ") })
}

func TestDataFoldersIncludeStoresElsewhere(t *testing.T) {
	t.Parallel()
	base, err := filepath.EvalSymlinks(tempDir(t))
	require.NoError(t, err)
	dir, link, spare := filepath.Join(base, "data"), filepath.Join(base, "link"), filepath.Join(base, "spare", "postgres")
	require.NoError(t, os.Mkdir(dir, 0o700))
	require.NoError(t, os.Symlink(dir, link))
	for _, named := range []string{dir, link} {
		cfg := Config{DataDir: named, StoreDirs: []string{spare, filepath.Join(dir, "redis")}}
		require.Equal(t, []string{named, spare}, cfg.dataFolders())
	}
}
