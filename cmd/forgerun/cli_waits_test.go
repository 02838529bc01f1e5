package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// A command that stops waiting for accepted work prints its id.
func TestAcceptedWorkHasAnIDIfTheWaitEnds(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "jobs")
	require.NoError(t, os.WriteFile(file, []byte(`[{"type":"EXECUTE"}]`), 0o600))
	for _, call := range []struct{ args, follow, stdout string }{
		{"jobs submit --wait -q", "jobs wait x", "x\n"},
		{"jobs submit --watch -o json", "jobs watch x", ""},
		{"batch submit " + file + " --wait", "batch watch x", ""},
		{"admin bulk start retry --all --wait", "admin bulk get x", ""},
	} {
		for flag, want := range map[string]int{"": command.Interrupted, "--timeout 3s": command.TimedOut} {
			t.Run(call.args+" "+flag, func(t *testing.T) {
				t.Parallel()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost {
						w.Header().Set("Content-Type", "application/json")
						w.WriteHeader(http.StatusAccepted)
						_, _ = io.WriteString(w, `{"job_id": "x", "batch_id": "x", "bulk_id": "x"}`)
						return
					}
					if flag == "" {
						stop()
					}
					<-r.Context().Done()
				}))
				defer server.Close()
				environment := env{
					"FORGERUN_URL": server.URL, "FORGERUN_API_KEY": "frk_x", "FORGERUN_ADMIN_URL": server.URL, "FORGERUN_ADMIN_TOKEN": "0123456789abcdef",
					"FORGERUN_DATA_DIR": t.TempDir(), "HOME": t.TempDir(),
				}
				var stdout, stderr bytes.Buffer
				code := run(ctx, strings.Fields(call.args+" "+flag), func(name string) string { return environment[name] }, nil, &stdout, &stderr)
				require.Equal(t, want, code, stderr.String())
				require.Equal(t, call.stdout, stdout.String())
				require.Contains(t, stderr.String(), " x was accepted. To follow it: forgerun "+call.follow+"\n")
			})
		}
	}
}

func TestListsSayThatTheyAreCut(t *testing.T) {
	t.Parallel()
	const all = 120
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		entries := strings.Repeat(`{"job_id": "x", "schedule_id": "x", "event_id": "x", "seq": 1}, `, all-1) + `{"job_id": "y", "seq": 2}`
		_, _ = fmt.Fprintf(w, `{"data": [%s], "page": {"next_cursor": null}}`, entries)
	}))
	t.Cleanup(server.Close)
	environment := env{"FORGERUN_URL": server.URL, "FORGERUN_API_KEY": "frk_x", "FORGERUN_DATA_DIR": t.TempDir(), "HOME": t.TempDir()}
	for call, want := range map[string]struct {
		lines int
		note  string
	}{
		"jobs list":             {50, "50 shown, there are more: --limit 0 shows all\n"},
		"jobs list --limit 0":   {all, ""},
		"jobs list --limit 7":   {7, ""},
		"jobs list --limit 120": {all, ""},
		"schedules list":        {50, "50 shown, there are more: --limit 0 shows all\n"},
		"events":                {100, "100 shown, there are more: --limit 0 shows all\n"},
		"events --limit 0":      {all, ""},
		"jobs events x":         {all, ""},
	} {
		code, stdout, stderr := runWith(t, environment, append(strings.Fields(call), "-q")...)
		require.Zero(t, code, call)
		require.Equal(t, want.lines, strings.Count(stdout, "\n"), call)
		require.Equal(t, want.note, stderr, call)
	}
	for _, call := range []string{"jobs list --limit -5", "events --limit -1", "schedules list --limit many"} {
		code, _, stderr := runWith(t, environment, strings.Fields(call)...)
		require.Equal(t, command.WrongUsage, code, call)
		require.Contains(t, stderr, "must be 0 or more", call)
	}
}
