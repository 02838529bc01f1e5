//go:build slow

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pageBlock matches a block that readers copy into a shell.
var pageBlock = regexp.MustCompile("(?ms)^```sh( background)?\n(.*?)^```$")

// exits matches a command that must fail, and its exit code.
var exits = regexp.MustCompile(`(?m)^(.*?) +# .*exits with (\d+)$`)

type pageReader struct {
	t           *testing.T
	folder      string
	environment []string
	address     string
	key, job    string // the last printed API key and job id
	shell       io.Writer
	output      *bufio.Scanner
	running     []*exec.Cmd
}

// In a copy of the repository, all commands of the README and tutorials work in order. The test replaces only the documented placeholders.
func TestCommandsOnPagesRun(t *testing.T) {
	t.Parallel()
	folder := copyOfRepository(t)
	for _, page := range []string{"README.md", "docs/tutorials/first-jobs.md", "docs/tutorials/testbed.md"} {
		text := readText(t, "../../"+page)
		blocks := pageBlock.FindAllStringSubmatch(text, -1)
		require.NotEmpty(t, blocks, page)
		r := newPageReader(t, folder)
		for _, block := range blocks {
			if strings.HasPrefix(block[2], "make test") {
				continue // this command would run this test
			}
			r.run(page, block[2], block[1] != "")
		}
		r.stop()
	}
}

func newPageReader(t *testing.T, folder string) *pageReader {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer free.Close()
	r := &pageReader{t: t, folder: folder, address: free.Addr().String()}
	r.environment = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GOFLAGS=-trimpath", // with -trimpath, builds in every folder share the cache
		"FORGERUN_HTTP_ADDR=" + r.address, "FORGERUN_ADMIN_ADDR=127.0.0.1:0",
	}
	shell := r.command("bash")
	r.shell, err = shell.StdinPipe()
	require.NoError(t, err)
	out, err := shell.StdoutPipe()
	require.NoError(t, err)
	shell.Stderr = shell.Stdout
	r.output = bufio.NewScanner(out)
	require.NoError(t, shell.Start())
	t.Cleanup(func() { _ = shell.Process.Kill(); _ = shell.Wait() })
	_, err = fmt.Fprintln(r.shell, `set -e; curl() { command curl --fail-with-body --silent --show-error "$@"; }`)
	require.NoError(t, err)
	return r
}

// copyOfRepository copies tracked files, and untracked files that git does not ignore.
func copyOfRepository(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	copying := exec.CommandContext(t.Context(), "sh", "-c",
		`git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 cp --parents -P -t "$0"`, folder)
	copying.Dir = "../.."
	out, err := copying.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return folder
}

func (r *pageReader) command(name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(r.t.Context(), name, args...)
	c.Dir, c.Env, c.SysProcAttr = r.folder, r.environment, dieWithTest()
	return c
}

// run executes a block of commands and waits for its end. For a background block, it waits for the first output. If the block starts the
// service, it waits for the API key.
func (r *pageReader) run(page, block string, background bool) {
	r.t.Helper()
	block = strings.NewReplacer("frk_...", r.key, "localhost:8080", r.address, "JOB_ID", r.job).Replace(block)
	if background {
		r.begin(page, block)
		return
	}
	block = exits.ReplaceAllString(block, "if $1; then false; else test $$? -eq $2; fi")
	_, err := fmt.Fprintf(r.shell, "{\n%s\n} </dev/null\necho; echo done with the block\n", block)
	require.NoError(r.t, err)
	var said strings.Builder
	for r.output.Scan() {
		line := r.output.Text()
		if line == "done with the block" {
			return
		}
		said.WriteString(line + "\n")
		r.note(line)
	}
	require.Fail(r.t, "a command failed", "%s says:\n%s\noutput:\n%s", page, block, said.String())
}

var printedKey, printedJob = regexp.MustCompile(`\bfrk_\w+`), regexp.MustCompile(`"job_id":"([0-9a-f-]{36})"`)

func (r *pageReader) note(line string) {
	if key := printedKey.FindString(line); key != "" {
		r.key = key
	}
	if id := printedJob.FindStringSubmatch(line); id != nil {
		r.job = id[1]
	}
}

func (r *pageReader) begin(page, block string) {
	r.t.Helper()
	c := r.command("bash", "-c", block)
	if c.SysProcAttr == nil {
		c.SysProcAttr = &syscall.SysProcAttr{}
	}
	c.SysProcAttr.Setpgid = true // own process group, so that the test can signal it as Ctrl-C does
	out, err := c.StdoutPipe()
	require.NoError(r.t, err)
	c.Stderr = c.Stdout
	require.NoError(r.t, c.Start())
	r.t.Cleanup(func() { _ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }) // in case the test fails before stop is called
	r.running = append(r.running, c)
	wanted := regexp.MustCompile(`.`)
	if strings.Contains(block, "make dev") {
		wanted = printedKey
	}
	lines := bufio.NewScanner(out)
	var said strings.Builder
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		r.note(lines.Text())
		if wanted.MatchString(lines.Text()) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	require.Fail(r.t, "the command ended", "%s says:\n%s\noutput:\n%s", page, block, said.String())
}

func (r *pageReader) stop() {
	for _, c := range r.running {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGINT)
		ended := make(chan struct{})
		go func() { _ = c.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(patience):
			require.Fail(r.t, "Ctrl-C does not end it", "%v", c.Args)
		}
	}
	require.NoFileExists(r.t, filepath.Join(r.folder, ".forgerun", "dev.json"), "only a running dev has this file")
}
