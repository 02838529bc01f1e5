package commands

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	testkit.RemovePrograms()
	os.Exit(code)
}

func simulate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return simulateIn(t.Context(), args...)
}

func simulateIn(ctx context.Context, args ...string) (code int, stdout, stderr string) {
	var out, errOut testkit.Output
	if args[0] != "demo" {
		args = append([]string{"simulate"}, args...)
	}
	p := command.Program{Arguments: args, Stdout: &out, Stderr: &errOut}
	root := &cobra.Command{Use: "forgerun"}
	root.AddCommand(Commands(p)...)
	code, err := command.Execute(ctx, root, "", args, &out, &errOut)
	if err != nil {
		code = p.Unusable(err)
	}
	return code, out.String(), errOut.String()
}

func serve(t *testing.T, status int, mediaType, body string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

const (
	away   = "http://127.0.0.1:1"
	steady = "run steady --url " + away
)

func TestBadUse(t *testing.T) {
	t.Parallel()
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("jobs: 5\narrival: {open: [{rate: 5/s}]}\nmix:\n  - kind: SUCCES_FAST\n"), 0o600))
	usable := serve(t, http.StatusCreated, "application/json", `{"client_id":"c","api_key":"k","key_id":"i"}`)
	foreign, noID := serve(t, http.StatusNotFound, "text/plain", "404 page not found"), serve(t, 201, "application/json", `{}`)
	problem := func(status int, code string) string {
		return serve(t, status, "application/problem+json", `{"code":"`+code+`","detail":"So."}`)
	}
	for line, want := range map[string]string{
		"rum":                           `there is no command "forgerun simulate rum": did you mean run?`,
		"run tour --speed 9":            "unknown flag: --speed (forgerun simulate run --help)",
		"run tour --url localhost:8080": "--url: client: the URL must begin with http:// or https://",
		"run tour --url http://x/?a=b":  "the URL must not have a user, a query",
		"run tour --url http://x --time-scale-hint a":   "must be a number from 0 to 1000",
		"run tour --url http://x --time-scale-hint NaN": "must be a number from 0 to 1000",
		"run tour --drain -1s":                          "must not be negative",
		"run tour --receiver-addr no --url " + usable:   "choose another --receiver-addr",
		"run tour --receiver-url x --url " + usable:     "must be a URL such as",
		"demo now":                          `forgerun demo does not know "now"`,
		"demo --forgerun /none":             "there is no forgerun program at /none",
		"scenarios nothing":                 `unknown scenario "nothing"; use one of `,
		"run":                               "name a scenario: a file, or one of autoscale",
		"run stedy":                         `neither a file nor one of autoscale, `,
		"run " + bad:                        `bad.yaml:4:11: kind must be one of ALL, SUCCESS_FAST, `,
		steady:                              "cannot use the service at " + away + ": ",
		"run steady --chaos kil=3s":         `unknown fault "kil"; known faults: kill`,
		"run steady --workers many":         "many",
		"run steady --forgerun /none":       "/none",
		steady + " --chaos kill=3s":         "--chaos affects only processes that the simulator started",
		steady + " --workers 2":             "--workers for a service at --url needs its --database-url",
		"run steady --key frk_x":            "--time-scale-hint need --url",
		"run steady --admin-url http://x:1": "pass --url and --database-url too",
		"run steady --admin-url x:1 --url http://x":                                      "is not an address such as",
		"run steady --lease 10ms":                                                        "--lease must be at least 1s",
		"run steady --redis-url redis://:hush@127.0.0.1:1 --url " + usable:               "the Redis server does not respond",
		"run steady --url " + usable + " --database-url postgres://u:hush@127.0.0.1:1/d": "read the database",

		"run tour --key frk_hush --url " + problem(401, "RFA_AUTH_INVALID_CREDENTIALS"): "RFA_AUTH_INVALID_CREDENTIALS",
		"run tour --url " + problem(403, "RFA_AUTH_FORBIDDEN"):                          "RFA_AUTH_FORBIDDEN",
		"run tour --key frk_hush --url " + problem(503, "RFA_STORAGE_UNAVAILABLE"):      "RFA_STORAGE_UNAVAILABLE",
		"run tour --key frk_hush --url " + problem(404, "RFA_REQUEST_NOT_FOUND"):        "RFA_REQUEST_NOT_FOUND",
		"run tour --url " + foreign:                "unexpected answer to POST",
		"run tour --key frk_hush --url " + foreign: "unexpected answer to GET",
		"run tour --url " + noID:                   "cannot use the service",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(line)
			if args[0] == "run" && len(args) > 1 {
				args = append(args, "--out", filepath.Join(t.TempDir(), "out"))
			}
			code, stdout, stderr := simulate(t, args...)
			require.Equal(t, command.WrongUsage, code, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, want)
			require.NotContains(t, stderr, "hush")
			require.Equal(t, 1+strings.Count(stderr, "The logs are in"), strings.Count(stderr, "\n"), "one sentence: %s", stderr)
		})
	}
}
