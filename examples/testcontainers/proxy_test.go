// Package testcontainers tests a client through a proxy in a container. The API server runs on this machine, outside of the container.
package testcontainers

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const sessions = "/-/forgerun/v1/testbed/sessions"

func TestClient(t *testing.T) {
	server := os.Getenv("API_URL") // such as http://127.0.0.1:3000
	if server == "" {
		t.Skip("set API_URL to your server's address")
	}
	proxy := startProxy(t, server)
	session := struct {
		ID string `json:"session_id"`
	}{}
	call(t, http.MethodPost, proxy+sessions, `{"profile": "flaky-network"}`, &session)

	// Run your client here. Its base address is the variable `proxy`.

	verdict := struct{ Verdict, Why string }{}
	call(t, http.MethodPost, proxy+sessions+"/"+session.ID+"/end", "", nil)
	call(t, http.MethodGet, proxy+sessions+"/"+session.ID+"/verdict", "", &verdict)
	if !strings.HasPrefix(verdict.Verdict, "passed") {
		t.Errorf("%s: %s", verdict.Verdict, verdict.Why)
	}
}

func startProxy(t *testing.T, server string) string {
	t.Helper()
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(at.Port())
	if err != nil {
		t.Fatal(err)
	}
	at.Host = net.JoinHostPort(testcontainers.HostInternal, at.Port())
	container, err := testcontainers.Run(t.Context(), "ghcr.io/forgerun/forgerun:latest",
		testcontainers.WithCmd("proxy", "--listen", "0.0.0.0:9000", "--target", at.String()),
		testcontainers.WithHostPortAccess(port),
		testcontainers.WithExposedPorts("9000/tcp"),
		testcontainers.WithWaitStrategy(wait.ForListeningPort("9000/tcp")),
	)
	testcontainers.CleanupContainer(t, container)
	if err != nil {
		t.Fatal(err)
	}
	address, err := container.PortEndpoint(t.Context(), "9000/tcp", "http")
	if err != nil {
		t.Fatal(err)
	}
	return address
}

func call(t *testing.T, method, address, body string, answer any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	if err == nil && answer != nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil || got.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s answered %d: %s (%v)", method, address, got.StatusCode, text, err)
	}
}
