package testbed

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProxyPrintsItsAddresses(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	code, stdout, stderr := invokeIn(stopped, "proxy", "--target", "http://localhost:3000", "--listen", "127.0.0.1:0")
	require.Equal(t, exitOK, code, stderr)
	const proxy = `http://127\.0\.0\.1:\d+`
	require.Regexp(t, "^"+proxy+" forwards to http://localhost:3000; sessions: "+proxy+"/-/forgerun/v1/testbed/sessions\n"+
		"While a fault refuses connections, the sessions are at "+proxy+"/-/forgerun/v1/testbed/sessions\n$", stdout)
}

func TestVerdictOfAnotherAPI(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.Header().Set("Operation-Location", "/operations/1")
			w.WriteHeader(http.StatusAccepted)
		}
		_, _ = w.Write([]byte(`{"status": "Succeeded"}`))
	}))
	defer target.Close()
	script := `test "$API_URL" = "$FORGERUN_URL" && curl -s -X POST "$API_URL/things" -d 1 && curl -s "$API_URL/operations/1"`
	html := filepath.Join(t.TempDir(), "v.html")
	code, stdout, stderr := invoke(t, "verdict", "--target", target.URL, "--url-env", "API_URL", "--rules", "outcome-learned,no-key-in-url",
		"--profile", "none", "--html", html, "--", "sh", "-c", script)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, "PASSED: no errors, no warnings\n2 rules passed.\n")
	require.FileExists(t, html)
	authority := filepath.Join(t.TempDir(), "ca.pem")
	code, stdout, stderr = invoke(t, "verdict", "--target", target.URL, "--profile", "none", "--tls", authority, "--", "sh", "-c",
		`curl -sf --cacert "`+authority+`" "$FORGERUN_URL/things" -d 1 && ! curl -sf "$FORGERUN_URL"`)
	require.Equal(t, exitOK, code, stdout+stderr)

	faults := filepath.Join(t.TempDir(), "faults.json")
	require.NoError(t, os.WriteFile(faults, []byte(`[{"match":{"operation":"read"},"effect":{"delay":"1ms"}}]`), 0o600))
	code, stdout, stderr = invoke(t, "verdict", "--target", target.URL, "--url-env", "API_URL", "--skip", "correlation-ids,outcome-learned",
		"--faults", faults, "--seeds", "2", "--", "sh", "-c", script)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Regexp(t, `PASSED +\S+faults.json +1 +- .*\nPASSED +\S+faults.json +2 +- `, stdout)
}
