package main

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// devStack is a stack for dev processes with stores that exist.
func devStack(t *testing.T) *stack {
	return newStack(t, env{"FORGERUN_LOG_FORMAT": "json", "FORGERUN_DATA_DIR": t.TempDir()})
}

// visit asks as a browser would, for a host that need not be the address.
func visit(t *testing.T, url, host string, header ...string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, url, nil)
	require.NoError(t, err)
	request.Host = host
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := (&http.Client{Timeout: patience}).Do(request)
	require.NoError(t, err)
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	if response.StatusCode == http.StatusMisdirectedRequest {
		require.Equal(t, "application/problem+json", response.Header.Get("Content-Type"))
	}
	return response.StatusCode, string(content)
}

// A page whose own name points to this machine gets nothing from dev.
func TestDevRefusesForeignHosts(t *testing.T) {
	t.Parallel()
	s := devStack(t)
	dev := s.start("dev", env{"FORGERUN_PUBLIC_URL": "https://dev.example.com"})
	dev.waitAPI()
	admin := "http://" + dev.logged("admin listening")["address"].(string)
	for host, status := range map[string]int{
		"localhost:8080": 200, "console.localhost": 200, "[::1]:8080": 200, "dev.example.com": 200, "rebind.example:8080": 421,
	} {
		for _, url := range []string{dev.url + "/healthz", dev.url + "/docs", dev.url + "/openapi.json", admin + "/", admin + "/metrics"} {
			got, body := visit(t, url, host, "X-Forwarded-Host", "localhost")
			require.Equal(t, status, got, "%s for %s: %s", url, host, body)
		}
	}
	got, body := visit(t, dev.url+"/v1/nothing", "rebind.example")
	require.Equal(t, http.StatusMisdirectedRequest, got)
	require.Contains(t, body, "rebind.example")
	for _, site := range []string{"cross-site", "same-site"} { // which all ports of localhost are
		got, _ = visit(t, admin+"/metrics", "localhost", "Sec-Fetch-Site", site)
		require.Equal(t, http.StatusForbidden, got)
	}
}

// Others may reach dev where it is not on loopback: its dashboards have a token then.
func TestDevOnTheNetworkHasAToken(t *testing.T) {
	t.Parallel()
	s := devStack(t)
	var tokens []string
	for range 2 { // the second time with the same data
		dev := s.start("dev", env{"FORGERUN_ADMIN_ADDR": "0.0.0.0:0"})
		dev.waitAPI()
		admin := "http://" + dev.logged("admin listening")["address"].(string)
		var shown []string
		eventually(t, "the token is shown", func() bool {
			shown = regexp.MustCompile(`Admin token (\S{40,})`).FindStringSubmatch(dev.stdout.String())
			return shown != nil
		})
		tokens = append(tokens, shown[1])
		require.Contains(t, dev.stdout.String(), "http://127.0.0.1:"+admin[strings.LastIndex(admin, ":")+1:]+"/", "an address to open")
		got, _ := visit(t, admin+"/debug/pprof/cmdline", "anything.example")
		require.Equal(t, http.StatusUnauthorized, got)
		got, _ = visit(t, admin+"/debug/pprof/cmdline", "anything.example", "Authorization", "Bearer "+shown[1])
		require.Equal(t, http.StatusOK, got)
		require.NotContains(t, dev.log.String(), shown[1])
		dev.kill()
	}
	require.Equal(t, tokens[0], tokens[1])
}
