package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(asServiceVar) != "" {
		os.Exit(serviceMain()) // this process plays forgerun dev: see service_test.go
	}
	code := m.Run()
	removeBinary()
	os.Exit(code)
}

// simulate runs the program as a shell would.
func simulate(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), args, func(string) string { return "" }, &out, &errOut)
	return code, out.String(), errOut.String()
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--help"}, []string{"Examples:", "simulator demo", "Exit codes:"}},
		{[]string{"help"}, []string{"Examples:"}},
		{[]string{"tour", "--help"}, []string{
			"simulator tour --url URL", "-timeout time", "15m", "-time-scale-hint number", "-receiver-addr address", "-receiver-url URL",
			"-webhook-patience time", "1m0s",
		}},
		{[]string{"demo", "-h"}, []string{"simulator demo", "-data-dir folder", "default \".forgerun\"", "-forgerun path"}},
		{[]string{"version"}, []string{"simulator ", "commit", "go        1."}},
	} {
		code, stdout, stderr := simulate(t, c.args...)
		require.Equal(t, exitOK, code, c.args)
		require.Empty(t, stderr, c.args)
		for _, want := range c.want {
			require.Contains(t, stdout, want, c.args)
		}
	}
}

func TestBadUse(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":         {nil, "Usage:"},
		"unknown command": {[]string{"toor"}, `there is no command "simulator toor": did you mean tour?`},
		"unknown flag":    {[]string{"tour", "--speed", "9"}, "unknown flag: --speed (simulator tour --help)"},
		"argument":        {[]string{"demo", "now"}, `unexpected argument "now"`},
		"no url":          {[]string{"tour"}, `"" is not the address of a service: give --url such as http://127.0.0.1:8080`},
		"url without scheme": {
			[]string{"tour", "--url", "localhost:8080"}, `"localhost:8080" is not the address of a service`,
		},
		"url with query": {[]string{"tour", "--url", "http://x/?a=b"}, "is not the address of a service"},
		"no number":      {[]string{"tour", "--url", "http://x", "--time-scale-hint", "fast"}, "must be a number from 0 to 1000"},
		"NaN":            {[]string{"tour", "--url", "http://x", "--time-scale-hint", "NaN"}, "must be a number from 0 to 1000"},
		"no time":        {[]string{"tour", "--url", "http://x", "--timeout", "0s"}, "--timeout and --webhook-patience must be above 0"},
		"no patience":    {[]string{"tour", "--url", "http://x", "--webhook-patience", "0s"}, "--timeout and --webhook-patience must be above 0"},
		"no receiver":    {[]string{"tour", "--url", "http://x", "--receiver-addr", "nowhere"}, "choose another --receiver-addr"},
		"receiver where": {[]string{"tour", "--url", "http://x", "--receiver-addr", ":0"}, "say with --receiver-url"},
		"receiver URL":   {[]string{"tour", "--url", "http://x", "--receiver-url", "x"}, "give --receiver-url such as"},
		"no binary":      {[]string{"demo", "--forgerun", "/does/not/exist"}, "there is no forgerun program at /does/not/exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := simulate(t, c.args...)
			require.Equal(t, exitUnusable, code)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			if c.args != nil {
				require.Equal(t, 1, strings.Count(stderr, "\n"), "one sentence: %s", stderr)
			}
		})
	}
}

func TestUnusableServices(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(nil)
	gone.Close()
	serve := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	closed := newFake(1)
	closed.flaws.closed = true
	busy := newFake(1)
	busy.busy = 1
	for name, c := range map[string]struct {
		url, key, want string
	}{
		"away":              {gone.URL, "", "nothing answers at " + gone.URL},
		"away, with key":    {gone.URL, fakeKey, "connection refused"},
		"wrong key":         {serve(newFake(1).handler()), "frk_wrong", "refuses the key: 401 RFA_AUTH_INVALID_CREDENTIALS"},
		"strangers refused": {serve(closed.handler()), "", "does not let strangers register (403 RFA_AUTH_FORBIDDEN"},
		"not now":           {serve(busy.handler()), fakeKey, "is not usable now"},
		"another server":    {serve(http.NotFoundHandler()), "", "something answers at http://127.0.0.1"},
		"another, with key": {serve(http.NotFoundHandler()), fakeKey, "but not as ForgeRun does"},
		"wrong path": {serve(newFake(1).handler()) + "/api", "",
			"but not as ForgeRun does (POST /v1/clients: 404 with text/plain): is --url right?"},
		"wrong path, ForgeRun itself": {serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			newFake(1).problem(w, http.StatusNotFound, "RFA_REQUEST_NOT_FOUND")
		})), fakeKey, "404 RFA_REQUEST_NOT_FOUND (Told so by the test.)): is --url right?"},
		"no client id": {serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{}`))
		})), "", "without a client id or key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"tour", "--url", c.url}
			if c.key != "" {
				args = append(args, "--key", c.key)
			}
			code, stdout, stderr := simulate(t, args...)
			require.Equal(t, exitUnusable, code, stdout)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			require.Equal(t, 1, strings.Count(stderr, "\n"), "one sentence: %s", stderr)
			require.NotContains(t, stderr, "frk_", "keys are never shown")
		})
	}
}

func TestInterruptedAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	server := httptest.NewServer(newFake(1).handler())
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"tour", "--url", server.URL}, os.Getenv, &stdout, &stderr)
	require.Equal(t, exitInterrupted, code)
}

// TestTourOverTheNetwork is the whole program against a real listener, with a
// key of its own and with a given one.
func TestTourOverTheNetwork(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"registers": "", "brings a key": fakeKey} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(0.02)
			f.flaws.holdRunning = "CANCEL_DURING_RUN"
			server := httptest.NewServer(f.handler())
			defer server.Close()
			args := []string{"tour", "--url", server.URL + "/v1", "--time-scale-hint", "0.02", "--timeout", "1m"}
			clients := 1
			if key != "" {
				args, clients = append(args, "--key", key), 0
			}
			code, stdout, stderr := simulate(t, args...)
			require.Equal(t, exitOK, code, stdout+stderr)
			require.Contains(t, stdout, "All 31 kinds behaved")
			require.Equal(t, clients, f.clients)
			f.requireNothingLeft(t)
		})
	}
}
