package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/devstack"
)

// inTerminal runs the program in a terminal of its own.
func inTerminal(t *testing.T, environment env, args ...string) (terminal *os.File, shown *output, cmd *exec.Cmd) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd = exec.Command(self, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=xterm", asProgram + "=1"}
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	terminal, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 160})
	require.NoError(t, err)
	shown = newOutput()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(shown, terminal) // until the program has ended
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = terminal.Close()
		<-read
	})
	return terminal, shown, cmd
}

const (
	red  = "\x1b[31m"
	link = "\x1b]8;;http://127.0.0.1:"
)

// dev in a terminal: progress, links, a coloured line for each job, the banner again on ?; a client finds it; what is taken is
// told with its holder.
func TestDevInATerminal(t *testing.T) {
	t.Parallel()
	base, err := devstack.MkdirTemp("forgerun-test-")
	require.NoError(t, err)
	t.Cleanup(func() { removeAll(t, base) })
	dir := filepath.Join(base, "data")
	const token = "0123456789abcdef-of-dev"
	terminal, shown, dev := inTerminal(t, env{
		"FORGERUN_DATA_DIR": dir, "FORGERUN_HTTP_ADDR": "127.0.0.1:0", "FORGERUN_ADMIN_ADDR": "127.0.0.1:0", "FORGERUN_TIME_SCALE": "0",
		"FORGERUN_ADMIN_TOKEN": "ann:" + token,
	}, "dev")
	const ready = "is ready."
	eventually(t, "dev is ready", func() bool { return strings.Contains(shown.String(), "? shows this again.") })
	require.Contains(t, shown.String(), "\r\x1b[K\x1b[2mStarting Redis ...")
	require.Contains(t, shown.String(), link)

	info, err := os.Stat(filepath.Join(dir, "dev.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	sh := &shell{t: t, secrets: []string{token}, env: env{"FORGERUN_DATA_DIR": dir, "HOME": t.TempDir()}}
	sh.exits(1, "", "jobs", "submit", "FAIL_IMMEDIATE", "--wait")
	failed := strings.TrimSpace(sh.ok("jobs", "list", "-o", "name"))
	require.Contains(t, sh.ok("admin", "jobs", "list"), failed, "with the token that dev noted")
	eventually(t, "the end of the job is shown", func() bool { return strings.Contains(shown.String(), failed) })
	require.Contains(t, shown.String(), red+"FAILED   \x1b[0m  "+failed+"  FAIL_IMMEDIATE")
	require.NotContains(t, shown.String(), "INFO", "nothing else is")

	require.Equal(t, 1, strings.Count(shown.String(), ready))
	_, err = terminal.WriteString("?")
	require.NoError(t, err)
	eventually(t, "the banner is shown again", func() bool { return strings.Count(shown.String(), ready) == 2 })

	var noted struct {
		URL string `json:"url"`
	}
	content, err := os.ReadFile(filepath.Join(dir, "dev.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, &noted))
	holder := fmt.Sprintf("process %d", dev.Process.Pid)
	sh.exits(1, "FORGERUN_DATA_DIR: the folder "+dir+" is used by "+holder, "dev")
	address := strings.TrimPrefix(noted.URL, "http://")
	sh.env = merge(required, env{"FORGERUN_HTTP_ADDR": address})
	sh.exits(1, "FORGERUN_HTTP_ADDR: "+address+" is taken by "+holder, "api")

	_, err = terminal.WriteString("\x03") // Ctrl-C
	require.NoError(t, err)
	require.NoError(t, dev.Wait())
	sh.env = env{"FORGERUN_DATA_DIR": dir, "HOME": t.TempDir()}
	sh.exits(2, "start forgerun dev in this folder (none runs here)", "jobs", "list")
}

func TestTakenAdminAddress(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	address := l.Addr().String()
	sh := &shell{t: t, env: merge(required, env{"FORGERUN_ADMIN_ADDR": address, "FORGERUN_HTTP_ADDR": "127.0.0.1:0"})}
	sh.exits(1, fmt.Sprintf("FORGERUN_ADMIN_ADDR: %s is taken by process %d", address, os.Getpid()), "api")
}

// A terminal gets colours and a progress bar, unless NO_COLOR forbids the colours.
func watchInTerminal(sh *shell) {
	t := sh.t
	for _, noColor := range []string{"", "1"} {
		job := strings.TrimSpace(sh.ok("jobs", "submit", "RETRY_ON_FAIL", "-o", "name"))
		_, shown, cmd := inTerminal(t, merge(sh.env, env{"NO_COLOR": noColor}), "jobs", "watch", job)
		require.Error(t, cmd.Wait())
		require.Equal(t, 1, cmd.ProcessState.ExitCode())
		eventually(t, "all is shown", func() bool {
			return strings.Count(shown.String(), job) > 3 && strings.Contains(shown.String(), "DETAIL")
		})
		require.Regexp(t, `RUNNING.* \[[#.]{24}\] +\d+%`, shown.String())
		require.Equal(t, noColor == "", strings.Contains(shown.String(), red+"FAILED"))
		require.Equal(t, noColor == "", strings.Contains(shown.String(), "\x1b[3"))
	}
	_, shown, cmd := inTerminal(t, merge(sh.env, env{"FORGERUN_DATABASE_URL": ""}), "doctor")
	require.Error(t, cmd.Wait())
	eventually(t, "the findings are shown in colour", func() bool { return strings.Contains(shown.String(), red+"FAIL\x1b[0m  ") })
}
