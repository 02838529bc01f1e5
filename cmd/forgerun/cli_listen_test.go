package main

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/testkit"
)

type background struct {
	out, err *testkit.Output
	code     chan int
}

func (s *shell) start(ctx context.Context, args ...string) *background {
	b := &background{new(testkit.Output), new(testkit.Output), make(chan int, 1)}
	go func() { b.code <- run(ctx, args, func(name string) string { return s.env[name] }, nil, b.out, b.err) }()
	return b
}

func (b *background) ends(t *testing.T, want int) {
	t.Helper()
	select {
	case code := <-b.code:
		require.Equal(t, want, code, b.err.String())
	case <-time.After(patience):
		require.FailNow(t, "the command does not end", b.err.String())
	}
}

func (b *background) registered(t *testing.T) (id, url string) {
	t.Helper()
	var found []string
	eventually(t, "the webhook is registered", func() bool {
		found = regexp.MustCompile(`Webhook (\S+) receives .* at (\S+)\. `).FindStringSubmatch(b.err.String())
		return found != nil
	})
	return found[1], found[2]
}

func listenCommand(sh *shell) {
	t := sh.t
	listener := sh.start(t.Context(), "webhooks", "listen", "--events", "job.succeeded,webhook.test", "--count", "2")
	id, url := listener.registered(t)

	// The receiver refuses unsigned deliveries.
	forged, err := http.Post(url, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, forged.Body.Close())
	require.Equal(t, http.StatusUnauthorized, forged.StatusCode)

	require.Contains(t, sh.ok("webhooks", "list"), id)
	job := sh.id("jobs", "submit", "SUCCESS_FAST")
	eventually(t, "the delivery is shown", func() bool { return strings.Contains(listener.out.String(), job) })
	require.Regexp(t, `verified +job\.succeeded +`+job+` +SUCCEEDED`, listener.out.String())
	require.Contains(t, listener.err.String(), "Refused a message")
	deliveries := sh.ok("webhooks", "deliveries", id, "-q")
	require.NotEmpty(t, deliveries)
	require.Contains(t, sh.ok("webhooks", "redeliver", id, strings.Fields(deliveries)[0]), "DELIVERY")
	require.Regexp(t, `\d`, sh.ok("webhooks", "redeliver", id, "--since", "1h"))
	require.Regexp(t, `\d`, sh.ok("webhooks", "replay", id, "--since", "1h"))
	require.Contains(t, sh.ok("webhooks", "test", id), "webhook.test")
	listener.ends(t, 0)
	require.NotContains(t, sh.ok("webhooks", "list"), id, "the webhook is deleted at the end")
	sh.exits(command.WrongUsage, "name deliveries", "webhooks", "redeliver", id)
	sh.exits(command.WrongUsage, "--since is required", "webhooks", "replay", id)
	sh.exits(command.Failed, "not found", "webhooks", "delete", "01981f2e-0000-7000-8000-000000000000")
}

// "webhooks listen" runs a command for each message. If the command fails, the message is delivered again.
func listenAndRun(sh *shell) {
	t := sh.t
	dir := t.TempDir()
	script := "cat >> " + dir + `/body; echo "$FORGERUN_EVENT $FORGERUN_JOB_ID" >> ` + dir + "/seen; mkdir " + dir + "/once && exit 1; exit 0"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener := sh.start(ctx, "webhooks", "listen", "--events", "job.failed", "--structured", "--", "sh", "-c", script)
	id, _ := listener.registered(t)
	job := sh.id("jobs", "submit", "FAIL_IMMEDIATE")
	line := "job.failed " + job + "\n"
	eventually(t, "the command ran twice", func() bool {
		seen, err := os.ReadFile(filepath.Join(dir, "seen"))
		return err == nil && string(seen) == line+line
	})
	body := readText(t, filepath.Join(dir, "body"))
	require.Contains(t, body, `"specversion"`, "a structured CloudEvent")
	stop()
	listener.ends(t, 0)
	require.NotContains(t, sh.ok("webhooks", "list"), id, "the webhook is deleted after Ctrl-C")
}

// A forwarded message is repeated until the receiver accepts it.
func listenAndForward(sh *shell) {
	t := sh.t
	var messages, bodies atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if body, err := io.ReadAll(r.Body); err == nil && strings.Contains(string(body), "jobStatus") && r.Header.Get("webhook-signature") != "" {
			bodies.Add(1)
		}
		if messages.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer target.Close()
	listener := sh.start(t.Context(), "webhooks", "listen", "--events", "job.failed", "--count", "1", "--forward", target.URL)
	listener.registered(t)
	sh.ok("jobs", "submit", "FAIL_IMMEDIATE")
	listener.ends(t, 0)
	require.EqualValues(t, 2, bodies.Load())
	require.Regexp(t, `(?s)job\.failed.*answered 503.*job\.failed.*answered 200`, listener.out.String())
	sh.exits(command.WrongUsage, "--forward", "webhooks", "listen", "--forward", "localhost")
	sh.exits(command.WrongUsage, "put the command after --", "webhooks", "listen", "./notify.sh")
}

func followEvents(sh *shell) {
	t := sh.t
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	follower := sh.start(ctx, "events", "--follow", "-o", "json")
	var job string
	eventually(t, "an event is shown", func() bool { // submit a job on each try: the first events may come before the stream is open
		job = sh.id("jobs", "submit", "SUCCESS_FAST")
		return strings.Contains(follower.out.String(), `"name":"job-created"`)
	})
	require.NotEmpty(t, job)
	for line := range strings.Lines(follower.out.String()) {
		require.True(t, strings.HasPrefix(line, "{") && strings.HasSuffix(line, "}\n"), "an object on each line: %s", line)
	}
	stop()
	follower.ends(t, command.Interrupted)
}
