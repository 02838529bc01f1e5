package monitoring

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/internal/telemetry"
)

const adminToken = "an-operators-long-token"

const readToken = "a-readers-long-token"

func newAdmin(token string, ready bool) Admin {
	tokens, err := operators.Parse(token, map[bool]string{true: readToken}[token != ""])
	if err != nil {
		panic(err)
	}
	return Admin{
		Registry: NewRegistry("v1", "api"), Log: slog.New(slog.DiscardHandler),
		Guard: operators.Guard{
			Tokens: tokens, Ended: &logouts{}, Attempts: authlimit.New(time.Now, telemetry.In(nil)), Log: slog.New(slog.DiscardHandler),
			Source: func(r *http.Request) netip.Addr { return netip.MustParseAddrPort(r.RemoteAddr).Addr() },
		},
		Ready:     func(context.Context) (bool, any) { return ready, map[string]string{"status": "as it is"} },
		Dashboard: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("dashboard")) }),
		Docs:      http.NotFoundHandler(),
		Console:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("console")) }),
	}
}

type logouts struct {
	ended sync.Map
	away  atomic.Bool
}

func (l *logouts) err() error {
	if l.away.Load() {
		return errors.New("storage is away")
	}
	return nil
}

func (l *logouts) Logout(_ context.Context, session string, _ time.Time) error {
	l.ended.Store(session, true)
	return l.err()
}

func (l *logouts) LoggedOut(_ context.Context, session string) (bool, error) {
	_, ended := l.ended.Load(session)
	return ended, l.err()
}

func admin(token string, ready bool) http.Handler { return newAdmin(token, ready).Handler() }

func get(h http.Handler, path string, prepare func(*http.Request)) *httptest.ResponseRecorder {
	return request(h, http.MethodGet, path, prepare)
}

func request(h http.Handler, method, path string, prepare func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	r.Host = "127.0.0.1:8081"
	if prepare != nil {
		prepare(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func bearer(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminToken) }

var guarded = []string{
	DashboardPath + "/", DashboardPath + "/api/queues",
	"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/pprof/symbol",
	"/debug/pprof/profile?seconds=1", "/debug/pprof/trace?seconds=0.01", "/debug/pprof/profile?seconds=x",
}

func TestAdminGuardsDashboardsAndProfiles(t *testing.T) {
	t.Parallel()
	h := admin(adminToken, true)
	for _, path := range guarded {
		for name, prepare := range map[string]func(*http.Request){
			"no credentials":           nil,
			"wrong token":              func(r *http.Request) { r.Header.Set("Authorization", "Bearer wrong") },
			"a longer token":           func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+adminToken+"x") },
			"empty token":              func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
			"an API key":               func(r *http.Request) { r.Header.Set("Authorization", "Bearer frk_x_y") },
			"an API key as a password": func(r *http.Request) { r.SetBasicAuth("admin", "frk_x_y") },
			"wrong password":           func(r *http.Request) { r.SetBasicAuth("anybody", "wrong") },
			"token as user name":       func(r *http.Request) { r.SetBasicAuth(adminToken, "") },
			"another scheme":           func(r *http.Request) { r.Header.Set("Authorization", "Token "+adminToken) },
			"token in query":           func(r *http.Request) { r.URL.RawQuery = "token=" + adminToken },
		} {
			w := get(h, path, prepare)
			require.Equal(t, http.StatusUnauthorized, w.Code, "%s with %s", path, name)
			require.Contains(t, w.Header().Get("WWW-Authenticate"), "Basic")
			require.NotContains(t, w.Body.String(), adminToken)
		}
	}
	for _, path := range guarded[:6] {
		require.Equal(t, http.StatusOK, get(h, path, func(r *http.Request) { r.Header.Set("Authorization", "bearer "+adminToken) }).Code, path)
		require.Equal(t, http.StatusOK, get(h, path, func(r *http.Request) { r.SetBasicAuth("anybody", adminToken) }).Code, path)
	}
}

func TestMetricsAndHealthNeedNoToken(t *testing.T) {
	t.Parallel()
	h := admin(adminToken, true)
	for path, status := range map[string]int{
		"/healthz": http.StatusOK, "/readyz": http.StatusOK, "/metrics": http.StatusOK, "/nothing": http.StatusNotFound,
		DashboardPath: http.StatusFound,
	} {
		require.Equal(t, status, get(h, path, nil).Code, path)
	}
	for _, path := range []string{"//metrics", "/./metrics", "/x/../metrics", "//", "//admin/v1/jobs"} { // ServeMux would redirect them
		w := get(h, "http://127.0.0.1:8081"+path, bearer)
		require.Equal(t, http.StatusNotFound, w.Code, path)
		require.Contains(t, w.Body.String(), "404 page", path)
	}
	w := get(admin("", false), "/readyz", nil)
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.JSONEq(t, `{"status":"as it is"}`, w.Body.String())
	require.Equal(t, "dashboard", get(admin("", true), DashboardPath+"/", nil).Body.String())
}

func TestReadOnlyOperators(t *testing.T) {
	t.Parallel()
	h := admin(adminToken, true)
	reader := func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+readToken) }
	for _, path := range guarded[:6] {
		require.Equal(t, http.StatusOK, get(h, path, reader).Code, path)
	}
	require.Equal(t, http.StatusOK, request(h, http.MethodHead, DashboardPath+"/", reader).Code)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		w := request(h, method, DashboardPath+"/api/queues", reader)
		require.Equal(t, http.StatusForbidden, w.Code, method)
		require.Contains(t, w.Body.String(), "This token is read-only.")
		require.Equal(t, http.StatusOK, request(h, method, DashboardPath+"/api/queues", bearer).Code, method)
	}
}

// Attempts with wrong tokens are limited, but a token that was accepted before still works. Guesses are logged without the token and do
// not fill the log.
func TestAdminLimitsAndLogsGuesses(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newAdmin(adminToken, true)
	a.Guard.Log = slog.New(slog.NewTextHandler(&out, nil))
	h := a.Handler()
	require.Equal(t, http.StatusOK, get(h, "/debug/pprof/cmdline", bearer).Code)
	var w *httptest.ResponseRecorder
	for range 1000 {
		w = get(h, "/debug/pprof/heap?x=%0aforged", func(r *http.Request) { r.Header.Set("Authorization", "Bearer a-guess") })
	}
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, get(h, "/debug/pprof/cmdline", bearer).Code, "a recently valid token passes")
	require.Equal(t, http.StatusOK, get(h, "/metrics", nil).Code)
	lines := strings.Count(out.String(), "\n")
	require.Positive(t, lines)
	require.LessOrEqual(t, lines, 20, "lines in the log")
	require.Contains(t, out.String(), `level=WARN msg="admin authentication failed" reason="wrong token" `+
		`remote_address=192.0.2.1 route="GET /debug/pprof/"`)
	require.NotContains(t, out.String(), "a-guess")
	require.NotContains(t, out.String(), adminToken)
	for presented, reason := range map[string]string{"": "no token", "Bearer frk_x_y": "a client's API key"} {
		out.Reset()
		a.Guard.Attempts = authlimit.New(time.Now, telemetry.In(nil))
		get(a.Handler(), DashboardPath+"/", func(r *http.Request) { r.Header.Set("Authorization", presented) })
		require.Contains(t, out.String(), `reason="`+reason+`"`)
		require.NotContains(t, out.String(), "frk_")
	}
	out.Reset()
	a.Guard.Attempts = authlimit.New(time.Now, telemetry.In(nil)) // the previous limiter would refuse this address
	h = a.Handler()
	require.Equal(t, http.StatusOK, get(h, "/debug/pprof/cmdline", bearer).Code)
	get(h, "/metrics", nil)
	require.Empty(t, out.String())
}

func TestAdminPage(t *testing.T) {
	t.Parallel()
	page := get(admin(adminToken, true), processPath, nil)
	require.Equal(t, http.StatusOK, page.Code)
	require.NotRegexp(t, `(?i)(https?:)?//[a-z]`, page.Body.String(), "the page loads nothing from other hosts")
	h := admin("", true)
	for _, link := range []string{"/asynqmon/", "/metrics", "/readyz", "/healthz", "/debug/pprof/", "/debug/pprof/heap",
		"/debug/pprof/goroutine?debug=1"} {
		require.Contains(t, page.Body.String(), `<a href="`+link+`">`)
		require.Equal(t, http.StatusOK, get(h, link, nil).Code, link)
	}
}

// If no token is configured, the host of a request must be a name of this machine. This stops DNS rebinding.
func TestOpenPagesAreForThisMachine(t *testing.T) {
	t.Parallel()
	for host, status := range map[string]int{
		"localhost:8081": 200, "[::1]:8081": 200, "": 421, "rebind.example:8081": 421,
	} {
		for _, path := range []string{"/asynqmon/", "/debug/pprof/", "/metrics", "/healthz", "/readyz", "/"} {
			w := get(admin("", true), path, func(r *http.Request) { r.Host = host })
			require.Equal(t, status, w.Code, "%q %s", host, path)
			require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
			if status != 200 {
				require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
				require.Contains(t, w.Body.String(), "FORGERUN_ADMIN_TOKEN")
			}
		}
		require.Equal(t, 200, get(admin(adminToken, true), "/metrics", func(r *http.Request) { r.Host = host }).Code)
		require.Equal(t, 401, get(admin(adminToken, true), "/debug/pprof/", func(r *http.Request) { r.Host = host }).Code)
	}
	guarded := newAdmin(adminToken, true)
	guarded.Hosts = func(host string) bool { return host == "here" }
	require.Equal(t, 421, get(guarded.Handler(), "/metrics", nil).Code)
	require.Equal(t, 200, get(guarded.Handler(), "/metrics", func(r *http.Request) { r.Host = "here" }).Code)
}

func TestPagesOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	for site, status := range map[string]int{"cross-site": 403, "same-site": 403, "same-origin": 200, "none": 200, "": 200} {
		for _, path := range []string{"/asynqmon/", "/debug/pprof/cmdline", "/metrics", "/"} {
			w := get(admin(adminToken, true), path, func(r *http.Request) { bearer(r); r.Header.Set("Sec-Fetch-Site", site) })
			require.Equal(t, status, w.Code, "%s %s", site, path)
		}
	}
	for mode, status := range map[string]int{"navigate document": 200, "navigate iframe": 403, "no-cors image": 403} {
		w := get(admin(adminToken, true), "/metrics", func(r *http.Request) {
			bearer(r)
			r.Header.Set("Sec-Fetch-Site", "same-site")
			mode, dest, _ := strings.Cut(mode, " ")
			r.Header.Set("Sec-Fetch-Mode", mode)
			r.Header.Set("Sec-Fetch-Dest", dest)
		})
		require.Equal(t, status, w.Code, mode)
	}
}

func TestAdminAcceptsOnlyReads(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(admin("", true))
	t.Cleanup(server.Close)
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/debug/pprof/", "/debug/pprof/heap",
		"/debug/pprof/profile?seconds=1", "/debug/pprof/symbol"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch} {
			w := request(server.Config.Handler, method, path, nil)
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
		response := must(http.Head(server.URL + path))(t)
		body := must(io.ReadAll(response.Body))(t)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, path)
		require.Empty(t, body)
	}
}

func TestAdminResponsesAreNotCachedOrFramed(t *testing.T) {
	t.Parallel()
	h := admin(adminToken, true)
	for _, path := range append(guarded, "/", "/metrics", "/healthz", "/readyz", "/nothing", DashboardPath) {
		for name, prepare := range map[string]func(*http.Request){"without the token": nil, "with it": bearer} {
			if prepare != nil && strings.Contains(path, "seconds=1") {
				continue
			}
			header := get(h, path, prepare).Header()
			require.Equal(t, "no-store", header.Get("Cache-Control"), "%s %s", path, name)
			require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
			require.Equal(t, "DENY", header.Get("X-Frame-Options"), path)
			require.Equal(t, "no-referrer", header.Get("Referrer-Policy"), path)
			require.Contains(t, header.Get("Content-Security-Policy"), "default-src 'self';", path)
			require.NotContains(t, header.Get("Content-Security-Policy"), "http", path)
		}
	}
}

// Not parallel, because a process can record only one trace at a time.
func TestProfilesAreBounded(t *testing.T) {
	h := admin(adminToken, true)
	w := get(h, "/debug/pprof/trace?seconds=0.01", bearer)
	require.Equal(t, http.StatusOK, w.Code)
	require.Equal(t, "application/octet-stream", w.Header().Get("Content-Type"))
	for _, seconds := range []string{"61", "60.001", "1e9", "Inf", "NaN", "-1", "0", "x", "99999999999999999999"} {
		for _, profile := range []string{"profile", "trace", "heap", "goroutine"} {
			w := get(h, "/debug/pprof/"+profile+"?seconds="+seconds, bearer)
			require.Equal(t, http.StatusBadRequest, w.Code, "%s of %s seconds", profile, seconds)
			require.Equal(t, "seconds must be a number above 0 and at most 60.\n", w.Body.String())
		}
	}
}
