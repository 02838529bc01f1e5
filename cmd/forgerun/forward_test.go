package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// Some clients cannot change the API's address. The test bed judges such clients through a proxy. Environment variables name the proxy.
// Requests to hosts other than the target pass unchanged and are not judged.
func TestForwardProxyByEnvironmentAlone(t *testing.T) {
	t.Parallel()
	content := make([]byte, 1<<20)
	_, _ = rand.Read(content)
	sum := fmt.Sprintf("%x", sha256.Sum256(content))
	target := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, `{"status":"running"}`)
	}
	other := func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "Via"} {
			if len(r.Header[name]) > 0 {
				t.Errorf("the other host was sent %s", name)
			}
		}
		_, _ = w.Write(content)
	}
	start := func(handler http.HandlerFunc, serve func(http.Handler) *httptest.Server) *httptest.Server {
		s := serve(handler)
		t.Cleanup(s.Close)
		return s
	}
	secured := start(target, httptest.NewTLSServer)
	trusted := trust(t, secured)
	for scheme, servers := range map[string][2]string{
		"https": {secured.URL, start(other, httptest.NewTLSServer).URL},
		"http":  {start(target, httptest.NewServer).URL, start(other, httptest.NewServer).URL},
	} {
		for name, command := range forwardClients(t, scheme) {
			t.Run(scheme+" "+name, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "verdict.json")
				text, err := tryIn(t, "testdata/forward", []string{"SSL_CERT_FILE=" + trusted}, testkit.Program(t, "forgerun"),
					append([]string{
						"verdict", "--target", servers[0], "--forward", "--profile", "none", "--rules", "no-key-in-url", "--json-file", file, "--",
					}, append(command, servers[0], servers[1])...)...)
				require.NoError(t, err, text)
				require.Contains(t, text, sum)
				shown := parsed[struct {
					Sessions []struct{ Exchanges int }
				}](t, readText(t, file))
				require.Len(t, shown.Sessions, 1, text)
				require.Equal(t, 1, shown.Sessions[0].Exchanges, text)
			})
		}
	}
}

// One session judges several hosts, and distinguishes equal paths of different hosts. Requests to other hosts pass unchanged.
func TestForwardProxyBeforeSeveralTargets(t *testing.T) {
	t.Parallel()
	var servers []string
	trusted := ""
	for _, serve := range []func(http.Handler) *httptest.Server{httptest.NewServer, httptest.NewTLSServer, httptest.NewServer} {
		s := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/orders/1")
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPost {
				w.WriteHeader(http.StatusAccepted)
			}
			_, _ = io.WriteString(w, `{"status":"`+map[string]string{http.MethodPost: "running", http.MethodGet: "done"}[r.Method]+`"}`)
		}))
		t.Cleanup(s.Close)
		servers = append(servers, s.URL)
		if s.TLS != nil {
			trusted = trust(t, s)
		}
	}
	// The client reads the first host's job until its end, and never reads the second host's job.
	client := `for at in "$@"; do curl -sSf -d '{}' "$at/orders"; done; curl -sSf "$1/orders/1"`
	file := filepath.Join(t.TempDir(), "verdict.json")
	text, err := tryIn(t, ".", []string{"SSL_CERT_FILE=" + trusted}, testkit.Program(t, "forgerun"), append([]string{
		"verdict", "--target", servers[0], "--target", servers[1], "--forward", "--profile", "none", "--rules", "outcome-learned",
		"--json-file", file, "--", "sh", "-c", client, "sh",
	}, servers...)...)
	require.NoError(t, err, text)
	shown := parsed[struct {
		Sessions []struct {
			Exchanges int
			Results   []struct {
				Times    int
				Evidence []struct{ Found string }
			}
		}
	}](t, readText(t, file))
	require.Len(t, shown.Sessions, 1, text)
	require.Equal(t, 3, shown.Sessions[0].Exchanges, text)
	jobs := shown.Sessions[0].Results[0]
	require.Equal(t, 2, jobs.Times, text)
	require.Len(t, jobs.Evidence, 1, text)
	require.Contains(t, jobs.Evidence[0].Found, "Job //"+strings.TrimPrefix(servers[1], "https://")+"/orders/1 ended")
}

func trust(t *testing.T, s *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "roots.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	require.NoError(t, os.WriteFile(file, certificate, 0o600))
	return file
}

// Node older than 22.21 ignores the proxy variables. There is no Go client, because Go ignores the proxy for loopback addresses.
func forwardClients(t *testing.T, scheme string) map[string][]string {
	t.Helper()
	clients := map[string][]string{"curl": {"sh", "-c", `curl -sf -d '{}' "$0/orders" >&2 && curl -sf "$1" | sha256sum`}}
	if scheme == "http" {
		return clients
	}
	clients["urllib"] = []string{"python3", "client.py"}
	runs := func(name string, arguments ...string) bool {
		return exec.CommandContext(t.Context(), name, arguments...).Run() == nil
	}
	for _, python := range []string{"python3", "/usr/bin/python3"} {
		if runs(python, "-c", "import requests") {
			clients["requests"] = []string{python, "requests_client.py"}
		}
	}
	if runs("node", "-e", "const [a, b] = process.versions.node.split('.'); process.exit(a >= 24 || (a == 22 && b >= 21) ? 0 : 1)") {
		clients["node"] = []string{"node", "client.mjs"}
	}
	if runs("sh", "-c", "java --list-modules | grep -q jdk.compiler") {
		clients["java"] = []string{"java", "Client.java"}
	}
	return clients
}
