package commands

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/testkit"
)

// The outcomes of tour do not depend on the machine's speed.
const tour = `
jobs: 5
drain: 1m
arrival: {closed: {clients: 5}}
pick: in_turn
mix:
  - {kind: RETRY_ON_FAIL, retry: {max: 1}, expect: "FAILED, then SUCCEEDED"}
  - {kind: DUPLICATE_SUBMIT_DIFFERENT_KEY, duplicate: {copies: 1, key: different}, expect: SUCCEEDED}
  - {kind: WEBHOOK_5XX, callback: unavailable, expect: "SUCCEEDED, delivered on retry"}
  - {kind: SCHEDULED_FAR_FUTURE, type: DEFERRED, ahead: 720h, cancel: {in: CREATED}, expect: "CANCELED, never ran"}
  - {kind: PAYLOAD_INVALID, expect: REJECTED}
receivers:
  - {name: everything}
  - {name: unavailable, callback: true, answers: [{status: 503, first: 1}]}
readers: {poll: 100%}
`

func only(entry string) string {
	head, rest, _ := strings.Cut(tour, "mix:\n")
	_, receivers, _ := strings.Cut(rest, "receivers:")
	head = strings.NewReplacer("jobs: 5", "jobs: 1", "clients: 5", "clients: 1").Replace(head)
	return head + "mix: [" + entry + "]\nreceivers:" + receivers
}

func TestRunningService(t *testing.T) {
	t.Parallel()
	s, err := stack.Start(t.Context(), stack.Options{
		Forgerun: testkit.Program(t, "forgerun"), Dir: t.TempDir(), TimeScale: 0.02, Workers: 1, Env: map[string]string{
			"FORGERUN_RETRY_BACKOFF_BASE": "200ms", "FORGERUN_RETRY_BACKOFF_MAX": "1s", "FORGERUN_WEBHOOK_MAX_RETRIES": "3",
			"FORGERUN_WEBHOOK_BACKOFF_BASE": "200ms", "FORGERUN_WEBHOOK_BACKOFF_MAX": "1s",
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	address := s.URL

	gone := httptest.NewServer(nil)
	gone.Close()
	wrong := through(t, address, http.MethodGet, func(_ *http.Request, body []byte) []byte {
		return bytes.Replace(body, []byte(`"max_attempts":4`), []byte(`"max_attempts":0`), 1)
	})
	t.Run("scenarios", func(t *testing.T) {
		for name, c := range map[string]struct {
			text string
			args []string
			code int
			want []string
		}{
			"all outcomes as expected": {tour, []string{"--url", address + "/v1"}, command.Succeeded, []string{
				`\n5 of 5 work kinds as expected\n`, `RETRY_ON_FAIL +FAILED, then SUCCEEDED +FAILED, then SUCCEEDED +1 +2 +\d+ ms +yes`,
				`DUPLICATE_SUBMIT_DIFFERENT_KEY +SUCCEEDED +SUCCEEDED +2 `, `PAYLOAD_INVALID +REJECTED +REJECTED +0 .* yes`,
			}},
			"wrong max_attempts in a response": {only("{kind: SUCCESS_FAST, expect: SUCCEEDED}"), []string{"--url", wrong}, command.Failed, []string{
				`\n0 of 1 work kinds as expected\n`, `SUCCESS_FAST: .*max_attempts 0`,
			}},
			"the service cannot reach the receiver": {only("{kind: WEBHOOK_5XX, callback: unavailable, expect: \"SUCCEEDED, delivered on retry\"}"),
				[]string{"--url", address, "--receiver-url", gone.URL}, command.Failed,
				[]string{`failed with CONNECTION_FAILED: the service must reach the receiver .*--receiver-url`}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, key, err := stack.Register(t.Context(), address)
				require.NoError(t, err)
				code, stdout, stderr := simulate(t, append([]string{"run", write(t, c.text), "--key", key, "--out", t.TempDir()}, c.args...)...)
				require.Equal(t, c.code, code, stdout+stderr)
				for _, want := range c.want {
					require.Regexp(t, want, stdout)
				}
				requireCleanedUp(t, address, key)
			})
		}
		t.Run("an interrupted run cancels its jobs", func(t *testing.T) {
			t.Parallel()
			interruptedRun(t, address)
		})
	})
}

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "own.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func interruptedRun(t *testing.T, address string) {
	ctx, interrupt := context.WithCancel(t.Context())
	over := make(chan struct{})
	defer close(over)
	slow := through(t, address, http.MethodPost, func(r *http.Request, body []byte) []byte {
		if strings.HasSuffix(r.URL.Path, "/jobs") {
			interrupt()
			<-over // hold back the response until the test ends
		}
		return body
	})
	_, key, err := stack.Register(t.Context(), address)
	require.NoError(t, err)
	code, stdout, stderr := simulateIn(ctx, "run", write(t, only("{kind: SCHEDULED_FAR_FUTURE, type: DEFERRED, ahead: 720h}")),
		"--url", slow, "--key", key, "--out", t.TempDir())
	require.Equal(t, command.Interrupted, code, stdout)
	require.Contains(t, stderr, "interrupted")
	require.Empty(t, stdout)
	requireCleanedUp(t, address, key)
}

func through(t *testing.T, service, method string, onResponse func(r *http.Request, body []byte) []byte) string {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(service, "/v1"))
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(response *http.Response) error {
		if r := response.Request; r.Method != method || !strings.HasPrefix(r.URL.Path, "/v1/jobs") {
			return nil
		}
		body, err := io.ReadAll(response.Body)
		body = onResponse(response.Request, body)
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		response.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return err
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

func requireCleanedUp(t *testing.T, url, key string) {
	t.Helper()
	c, err := client.New(client.Config{URL: url, Key: key})
	require.NoError(t, err)
	for j, err := range c.Jobs(t.Context(), client.JobFilter{}) {
		require.NoError(t, err)
		require.True(t, j.Final(), "%s is still %s", j.WorkKind, j.State)
	}
	left, err := c.Webhooks(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}
