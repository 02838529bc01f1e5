package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

type proc struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *testkit.Output
	log    *testkit.Output // standard error
	done   chan struct{}   // closed when the process has ended
	url    string
	paused bool
}

// startProc runs the program with these environment variables and no others. When the process ends, startProc checks that the log contains
// no data race, only JSON objects and no secrets.
func startProc(t *testing.T, env map[string]string, secrets func() []string, args ...string) *proc {
	t.Helper()
	return startProgram(t, testkit.Program(t, "forgerun"), env, secrets, args...)
}

func startProgram(t *testing.T, program string, env map[string]string, secrets func() []string, args ...string) *proc {
	t.Helper()
	p := newProc(t, program, env, args...)
	p.cmd.Stderr = p.log
	p.run(env, secrets)
	return p
}

func newProc(t *testing.T, program string, env map[string]string, args ...string) *proc {
	p := &proc{t: t, cmd: exec.Command(program, args...), stdout: new(testkit.Output), log: new(testkit.Output), done: make(chan struct{})}
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.SysProcAttr = p.stdout, dieWithTest()
	return p
}

func (p *proc) run(env map[string]string, secrets func() []string) {
	t, args := p.t, p.cmd.Args[1:]
	require.NoError(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		p.checkLog(env["FORGERUN_LOG_FORMAT"] != "text", secrets())
		if t.Failed() {
			t.Logf("--- %v, process %d, ended with %d:\n%s", args, p.cmd.Process.Pid, p.cmd.ProcessState.ExitCode(), tail(p.log))
		}
	})
}

func (p *proc) checkLog(isJSON bool, secrets []string) {
	text := p.log.String()
	if strings.Contains(text, "DATA RACE") || strings.Contains(text, "\npanic: ") {
		p.t.Errorf("data race or panic:\n%s", text)
		return
	}
	for _, secret := range secrets {
		if strings.Contains(text+p.stdout.String(), secret) {
			p.t.Errorf("the secret %q is in the log", secret)
		}
	}
	if !isJSON {
		return
	}
	for line := range strings.Lines(text) {
		// The last line of a killed process may be incomplete.
		if strings.HasSuffix(line, "\n") && !strings.HasPrefix(line, "forgerun: ") && !(line[0] == '{' && json.Valid([]byte(line))) {
			p.t.Errorf("not a JSON log line: %q", line)
		}
	}
}

func (p *proc) signal(s syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

func (p *proc) kill() {
	_ = p.cmd.Process.Kill() // it may have ended already
	<-p.done
}

// pause stops the process and waits until all threads are stopped. On a busy machine, they run for a while after the signal.
func (p *proc) pause() {
	p.signal(syscall.SIGSTOP)
	p.paused = true
	eventually(p.t, "the process is paused", func() bool { return allThreadsStopped(p.cmd.Process.Pid) })
}

func (p *proc) resume() { p.signal(syscall.SIGCONT); p.paused = false }

func (p *proc) terminate() { p.signal(syscall.SIGTERM) }

func (p *proc) stop() {
	p.t.Helper()
	p.terminate()
	require.Zero(p.t, p.exitCode())
}

func (p *proc) exitCode() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		require.FailNow(p.t, "the process does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *proc) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return !p.paused
	}
}

func (p *proc) logged(message string, with ...string) map[string]any {
	p.t.Helper()
	var found map[string]any
	eventually(p.t, "log line "+message, func() bool {
		for line := range strings.Lines(p.log.String()) {
			if !strings.HasSuffix(line, "\n") || !containsAll(line, append(with, message)) {
				continue
			}
			var fields map[string]any
			if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == message {
				found = fields
				return true
			}
		}
		select {
		case <-p.done:
			require.FailNow(p.t, "the process ended before it logged: "+message)
		default:
		}
		return false
	})
	return found
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func (p *proc) adminURL() string {
	p.t.Helper()
	return "http://" + p.logged("admin listening")["address"].(string)
}

func (p *proc) admin(path string) (status int, body string) {
	p.t.Helper()
	response, err := http.Get(p.adminURL() + path)
	require.NoError(p.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(text)
}

// metric returns the value of a series, or 0 if there is none. `sample` names the series, such as fenced_writes_total{operation="finish"}.
func (p *proc) metric(sample string) float64 {
	p.t.Helper()
	_, body := p.admin("/metrics")
	_, value, _ := strings.Cut("\n"+body, "\n"+sample+" ")
	value, _, _ = strings.Cut(value, "\n")
	n, _ := strconv.ParseFloat(value, 64)
	return n
}

func tail(o *testkit.Output) string {
	const lines = 40
	var kept []string
	for line := range strings.Lines(o.String()) {
		if !strings.Contains(line, `"msg":"request"`) && !strings.Contains(line, `"action":"submit"`) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-lines):], "")
}

var (
	patience   = testkit.Patience
	eventually = testkit.Eventually
)

func merge(envs ...map[string]string) map[string]string {
	all := map[string]string{}
	for _, env := range envs {
		maps.Copy(all, env)
	}
	return all
}
