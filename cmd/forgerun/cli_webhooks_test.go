package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// background is a command that runs meanwhile.
type background struct {
	out, err *output
	code     chan int
}

func (s *shell) start(ctx context.Context, args ...string) *background {
	b := &background{newOutput(), newOutput(), make(chan int, 1)}
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

// registered waits until the receiver is known to the service.
func (b *background) registered(t *testing.T) (id, url string) {
	t.Helper()
	var found []string
	eventually(t, "the webhook is registered", func() bool {
		found = regexp.MustCompile(`Webhook (\S+) gets .* at (\S+)\. `).FindStringSubmatch(b.err.String())
		return found != nil
	})
	return found[1], found[2]
}

func listenCommand(sh *shell) {
	t := sh.t
	listener := sh.start(t.Context(), "webhooks", "listen", "--events", "job.succeeded,webhook.test", "--count", "2")
	id, url := listener.registered(t)

	// What the service did not sign is refused.
	forged, err := http.Post(url, "application/json", strings.NewReader("{}"))
	require.NoError(t, err)
	require.NoError(t, forged.Body.Close())
	require.Equal(t, http.StatusUnauthorized, forged.StatusCode)

	require.Contains(t, sh.ok("webhooks", "list"), id)
	job := strings.TrimSpace(sh.ok("jobs", "submit", "SUCCESS_FAST", "-o", "name"))
	eventually(t, "the delivery is shown", func() bool { return strings.Contains(listener.out.String(), job) })
	require.Regexp(t, `verified +job\.succeeded +`+job+` +COMPLETED`, listener.out.String())
	require.Contains(t, listener.err.String(), "A message was refused")
	deliveries := sh.ok("webhooks", "deliveries", id, "-o", "name")
	require.NotEmpty(t, deliveries)
	require.Contains(t, sh.ok("webhooks", "redeliver", id, strings.Fields(deliveries)[0]), "DELIVERY")
	require.Regexp(t, `\d`, sh.ok("webhooks", "redeliver", id, "--since", "1h"))
	require.Regexp(t, `\d`, sh.ok("webhooks", "replay", id, "--since", "1h"))
	require.Contains(t, sh.ok("webhooks", "test", id), "webhook.test")
	listener.ends(t, 0)
	require.NotContains(t, sh.ok("webhooks", "list"), id, "it is deleted at the end")
	sh.exits(command.WrongUsage, "name deliveries", "webhooks", "redeliver", id)
	sh.exits(command.WrongUsage, "give --since", "webhooks", "replay", id)
	sh.exits(command.Failed, "404", "webhooks", "delete", "01981f2e-0000-7000-8000-000000000000")
	sh.exits(command.WrongUsage, "did you mean listen", "webhooks", "listn")
}

// A command is run for each message; one that it does not take comes again.
func listenAndRun(sh *shell) {
	t := sh.t
	dir := t.TempDir()
	script := "cat >> " + dir + `/body; echo "$FORGERUN_EVENT $FORGERUN_JOB_ID" >> ` + dir + "/seen; mkdir " + dir + "/once && exit 1; exit 0"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener := sh.start(ctx, "webhooks", "listen", "--events", "job.failed", "--exec", script, "--structured")
	id, _ := listener.registered(t)
	job := strings.TrimSpace(sh.ok("jobs", "submit", "FAIL_IMMEDIATE", "-o", "name"))
	line := "job.failed " + job + "\n"
	eventually(t, "the command ran twice", func() bool {
		seen, err := os.ReadFile(filepath.Join(dir, "seen"))
		return err == nil && string(seen) == line+line
	})
	body, err := os.ReadFile(filepath.Join(dir, "body"))
	require.NoError(t, err)
	require.Contains(t, string(body), `"specversion"`, "a structured CloudEvent")
	stop()
	listener.ends(t, 0)
	require.NotContains(t, sh.ok("webhooks", "list"), id, "it is deleted after Ctrl-C too")
}

func followEvents(sh *shell) {
	t := sh.t
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	follower := sh.start(ctx, "events", "--follow", "-o", "json")
	var job string
	eventually(t, "an event is shown", func() bool { // the first ones may come before the stream is there
		job = strings.TrimSpace(sh.ok("jobs", "submit", "SUCCESS_FAST", "-o", "name"))
		return strings.Contains(follower.out.String(), `"name":"job-created"`)
	})
	require.NotEmpty(t, job)
	for line := range strings.Lines(follower.out.String()) {
		require.True(t, strings.HasPrefix(line, "{") && strings.HasSuffix(line, "}\n"), "an object on each line: %s", line)
	}
	stop()
	follower.ends(t, command.Interrupted)
}
