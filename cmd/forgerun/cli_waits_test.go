package main

import (
	"bytes"
	"context"
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
		for flag, want := range map[string]int{"": command.Interrupted, " --timeout 3s": command.TimedOut} {
			t.Run(call.args+flag, func(t *testing.T) {
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
				code := run(ctx, strings.Fields(call.args+flag), func(name string) string { return environment[name] }, nil, &stdout, &stderr)
				require.Equal(t, want, code, stderr.String())
				require.Equal(t, call.stdout, stdout.String())
				require.Contains(t, stderr.String(), " x was accepted. To follow it: forgerun "+call.follow+"\n")
			})
		}
	}
}
