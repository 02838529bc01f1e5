package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const adminToken = "an-operators-long-token"

func admin(token string, ready bool) http.Handler {
	return Admin{
		Registry: NewRegistry("v1", "api"), Token: token,
		Ready:     func(context.Context) (bool, any) { return ready, map[string]string{"status": "as it is"} },
		Dashboard: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("dashboard")) }),
	}.Handler()
}

func get(h http.Handler, path string, prepare func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	if prepare != nil {
		prepare(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAdminGuardsDashboardsAndProfiles(t *testing.T) {
	t.Parallel()
	h := admin(adminToken, true)
	for _, path := range []string{DashboardPath + "/", DashboardPath + "/api/queues", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
		for name, prepare := range map[string]func(*http.Request){
			"nothing":        nil,
			"wrong token":    func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") },
			"an API key":     func(r *http.Request) { r.Header.Set("Authorization", "Bearer frk_x_y") },
			"wrong password": func(r *http.Request) { r.SetBasicAuth("anybody", "wrong") },
			"as the user":    func(r *http.Request) { r.SetBasicAuth(adminToken, "") },
			"in the query":   func(r *http.Request) { r.URL.RawQuery = "token=" + adminToken },
		} {
			w := get(h, path, prepare)
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s with %s", path, name)
			require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic")
			require.NotContains(t, w.Body.String(), adminToken)
		}
		require.Equal(t, http.StatusOK, get(h, path, func(r *http.Request) { r.Header.Set("Authorization", "bearer "+adminToken) }).Code, path)
		require.Equal(t, http.StatusOK, get(h, path, func(r *http.Request) { r.SetBasicAuth("anybody", adminToken) }).Code, path)
	}
}

func TestAdminIsOpenWhereMachinesLook(t *testing.T) {
	t.Parallel()
	h := admin(adminToken, true)
	require.Equal(t, http.StatusOK, get(h, "/healthz", nil).Code)
	require.Equal(t, http.StatusOK, get(h, "/readyz", nil).Code)
	metrics := get(h, "/metrics", nil)
	require.Equal(t, http.StatusOK, metrics.Code)
	require.Contains(t, metrics.Body.String(), `forgerun_build_info{role="api",version="v1"} 1`)
	require.Contains(t, metrics.Body.String(), "go_goroutines")

	page := get(h, "/", nil)
	require.Equal(t, http.StatusOK, page.Code)
	require.NotRegexp(t, `(?i)(src|href)="https?://`, page.Body.String(), "the console works without an outside network")
	require.Equal(t, http.StatusNotFound, get(h, "/nothing", nil).Code)
	require.Equal(t, http.StatusFound, get(h, DashboardPath, nil).Code)
}

func TestAdminTellsThatItIsNotReady(t *testing.T) {
	t.Parallel()
	w := get(admin("", false), "/readyz", nil)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.JSONEq(t, `{"status":"as it is"}`, w.Body.String())
}

func TestAdminWithoutTokenIsOpen(t *testing.T) {
	t.Parallel()
	require.Equal(t, "dashboard", get(admin("", true), DashboardPath+"/", nil).Body.String())
}

func TestLoggerKeepsClientTextOnItsLine(t *testing.T) {
	t.Parallel()
	const hostile = "a\nlevel=ERROR msg=forged\r\x1b[31m\u2028"
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		log, err := NewLogger(&out, slog.LevelInfo, format)
		require.NoError(t, err)
		log.Debug("below the level")
		log.Info("hello", "text", hostile)
		require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
		require.NotContains(t, out.String(), "\x1b")
		if format == "json" {
			var line map[string]any
			require.NoError(t, json.Unmarshal(out.Bytes(), &line))
			require.Equal(t, hostile, line["text"])
		}
	}
	_, err := NewLogger(nil, slog.LevelInfo, "xml")
	require.ErrorContains(t, err, "json or text")
}
