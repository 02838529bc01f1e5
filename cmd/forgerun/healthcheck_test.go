package main

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealthcheckOfEveryCommand(t *testing.T) {
	t.Parallel()
	image := env{"FORGERUN_HTTP_ADDR": "0.0.0.0:8080", "FORGERUN_ADMIN_ADDR": "0.0.0.0:8082"}
	bare := env{}
	for _, one := range []struct {
		environment env
		runs, at    string
	}{
		{image, "forgerun dev", "http://127.0.0.1:8080/readyz"},
		{bare, "/usr/local/bin/forgerun dev --verbose", "http://127.0.0.1:8080/readyz"},
		{image, "forgerun api", "http://127.0.0.1:8082/readyz"},
		{bare, "forgerun api", "http://127.0.0.1:8081/readyz"},
		{bare, "forgerun api --port 80 --admin-port=81", "http://127.0.0.1:81/readyz"},
		{image, "/sbin/docker-init -- /usr/local/bin/forgerun worker", "http://127.0.0.1:8082/readyz"},
		{bare, "forgerun deliverer", "http://127.0.0.1:8083/readyz"},
		{image, "forgerun proxy --listen 0.0.0.0:9000 --target http://host.docker.internal:3000", "tcp://127.0.0.1:9000"},
		{image, "forgerun proxy --target http://x --listen=[::]:9001 --tls ca.pem", "tcp://127.0.0.1:9001"},
		{image, "forgerun proxy --target http://x", "tcp://127.0.0.1:9000"},
		{image, "forgerun proxy --target http://x --listen 127.0.0.1:0", ""},
		{image, "forgerun jobs watch --all", ""},
		{image, "forgerun nonsense", ""},
	} {
		p := &program{getenv: func(name string) string { return one.environment[name] }}
		at, ours := p.healthAddress(strings.ReplaceAll(one.runs, " ", "\x00") + "\x00")
		require.True(t, ours, one.runs)
		require.Equal(t, one.at, at, one.runs)
	}
	for _, others := range []string{"", "/sbin/init", "sh\x00-c\x00forgerun dev\x00"} {
		_, ours := (&program{}).healthAddress(others)
		require.False(t, ours, others)
	}
}

func TestHealthcheckOfAListener(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := "tcp://" + listener.Addr().String()
	code, _, _ := runWith(t, env{}, "healthcheck", "--url", at)
	require.Zero(t, code)
	require.NoError(t, listener.Close())
	code, _, stderr := runWith(t, env{}, "healthcheck", "--url", at)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "forgerun healthcheck: ")

	unready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer unready.Close()
	code, _, stderr = runWith(t, env{}, "healthcheck", "--url", unready.URL)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "503 Service Unavailable")
}
