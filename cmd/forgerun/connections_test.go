package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Many more connections than files, all silent, end neither the process nor the
// clients that it has: on the API's listener as on the admin listener.
func TestMoreConnectionsThanFiles(t *testing.T) {
	t.Parallel()
	const files, attempts = 256, 2000
	s := newStack(t)
	self, err := os.Executable()
	require.NoError(t, err)
	shell, err := exec.LookPath("sh")
	require.NoError(t, err)
	p := startProgram(t, shell, s.env, s.knownSecrets, "-c", fmt.Sprintf("ulimit -n %d; exec %s api", files, self))
	s.procs = append(s.procs, p)
	p.waitAPI()
	admin := p.logged("admin listening")["address"].(string)
	u := s.newUser(p)
	for _, addr := range []string{strings.TrimPrefix(p.url, "http://"), admin} {
		established, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		in := bufio.NewReader(established)
		ask := func() {
			_, err := fmt.Fprint(established, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
			require.NoError(t, err)
			response, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			_, err = in.Discard(int(response.ContentLength))
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, response.StatusCode)
		}
		for n := range attempts {
			silent, err := net.Dial("tcp", addr)
			require.NoError(t, err)
			defer func() { _ = silent.Close() }()
			if n%100 == 0 {
				ask()
			}
		}
		ask()
		require.NoError(t, established.Close())
		u.submit(p, `{"type":"EXECUTE"}`)
	}
	require.Greater(t, p.metric(`connections_refused_total{reason="idle"}`), float64(attempts))
	p.terminate()
	require.Equal(t, 0, p.exitCode())
}

// A request that a proxy in front could end elsewhere is no request.
func TestRequestsThatAProxyCouldReadDifferently(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startAPI()
	nobody := &user{s: s}
	for _, fields := range []string{
		"Content-Length: 0\r\nTransfer-Encoding: identity\r\n", "A: b\nC: d\r\n", "A: b\r\n c\r\n", "A : b\r\n",
	} {
		line := nobody.callRaw(api, "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n"+fields)
		require.Contains(t, line, " 400 ", fields)
	}
	require.Contains(t, nobody.callRaw(api, "POST /v1/jobs HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"), " 400 ")
}
