package monitoring

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/operators"
)

type sessionDocument struct {
	Operator  string     `json:"operator"`
	ReadOnly  bool       `json:"read_only"`
	CSRFToken string     `json:"csrf_token"`
	ExpiresAt *time.Time `json:"expires_at"`
}

func login(h http.Handler, token string, prepare func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("token="+token))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Host = "127.0.0.1:8081"
	if prepare != nil {
		prepare(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func loggedIn(t *testing.T, h http.Handler, token string) (withCookie func(*http.Request), s sessionDocument) {
	t.Helper()
	w := login(h, token, nil)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	cookies := w.Result().Cookies()
	require.Len(t, cookies, 1)
	return func(r *http.Request) { r.AddCookie(cookies[0]) }, s
}

func echo(a Admin) http.Handler {
	a.Dashboard = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		operator, _ := a.Guard.Check(r)
		_, _ = w.Write([]byte(operator.Name))
	})
	return a.Handler()
}

func TestLogin(t *testing.T) {
	t.Parallel()
	h := echo(newAdmin(adminToken, true))
	require.Equal(t, http.StatusUnauthorized, get(h, "/session", nil).Code)
	cookie, s := loggedIn(t, h, adminToken)
	require.Equal(t, "admin", s.Operator)
	require.False(t, s.ReadOnly)
	require.True(t, s.ExpiresAt.After(time.Now()))
	var again sessionDocument
	require.NoError(t, json.Unmarshal(get(h, "/session", cookie).Body.Bytes(), &again))
	require.Equal(t, s.CSRFToken, again.CSRFToken)
	for _, path := range append(guarded[:6:6], DashboardPath+"/jobs") {
		require.Equal(t, http.StatusOK, get(h, path, cookie).Code, path)
	}
	require.Equal(t, "admin", get(h, DashboardPath+"/jobs", cookie).Body.String())

	for body, status := range map[string]int{
		"": http.StatusUnauthorized, "wrong": http.StatusUnauthorized, "frk_x_y": http.StatusUnauthorized,
		"%zz": http.StatusBadRequest, strings.Repeat("x", maxLogin+1): http.StatusBadRequest,
	} {
		w := login(h, body, nil)
		require.Equal(t, status, w.Code, body)
		require.Empty(t, w.Result().Cookies())
	}
	require.Equal(t, http.StatusUnauthorized, request(h, http.MethodPost, "/login?token="+adminToken, nil).Code, "no token in a URL")
	require.Equal(t, http.StatusMethodNotAllowed, get(h, "/login", nil).Code)
}

// A logout also makes copies of the cookie invalid. While the store is down, all sessions are invalid, but tokens work.
func TestLogout(t *testing.T) {
	t.Parallel()
	a := newAdmin(adminToken, true)
	ended := &logouts{}
	a.Guard.Ended = ended
	h := echo(a)
	cookie, _ := loggedIn(t, h, adminToken)
	other, _ := loggedIn(t, h, adminToken)
	out := request(h, http.MethodPost, "/logout", cookie)
	require.Equal(t, http.StatusNoContent, out.Code)
	require.Negative(t, out.Result().Cookies()[0].MaxAge)
	for _, path := range append(guarded[:6:6], DashboardPath+"/jobs", "/session") {
		require.Equal(t, http.StatusUnauthorized, get(h, path, cookie).Code, path)
		require.Equal(t, http.StatusOK, get(h, path, other).Code, path)
	}
	ended.away.Store(true)
	require.Equal(t, http.StatusServiceUnavailable, get(h, DashboardPath+"/jobs", other).Code)
	require.NotEmpty(t, get(h, "/session", other).Header().Get("Retry-After"))
	require.Equal(t, http.StatusOK, get(h, DashboardPath+"/jobs", bearer).Code)
	out = request(h, http.MethodPost, "/logout", other)
	require.Equal(t, http.StatusServiceUnavailable, out.Code)
	require.Negative(t, out.Result().Cookies()[0].MaxAge)
}

func TestSessionChangesNeedTheCSRFToken(t *testing.T) {
	t.Parallel()
	h := echo(newAdmin(adminToken, true))
	cookie, s := loggedIn(t, h, adminToken)
	_, other := loggedIn(t, h, adminToken)
	for _, method := range []string{http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodPatch} {
		for header, status := range map[string]int{
			"": http.StatusForbidden, "x": http.StatusForbidden, other.CSRFToken: http.StatusForbidden, s.CSRFToken: http.StatusOK,
		} {
			w := request(h, method, DashboardPath+"/jobs", func(r *http.Request) {
				cookie(r)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set(operators.CSRFHeader, header)
			})
			require.Equal(t, status, w.Code, "%s with %q", method, header)
		}
		require.Equal(t, http.StatusOK, request(h, method, DashboardPath+"/jobs", func(r *http.Request) {
			cookie(r)
			bearer(r)
		}).Code, "a bearer token needs no CSRF token")
		require.Equal(t, http.StatusOK, request(h, method, DashboardPath+"/jobs", func(r *http.Request) { r.SetBasicAuth("x", adminToken) }).Code)
	}
	reader, s := loggedIn(t, h, readToken)
	require.True(t, s.ReadOnly)
	w := request(h, http.MethodPost, DashboardPath+"/jobs", func(r *http.Request) {
		reader(r)
		r.Header.Set(operators.CSRFHeader, s.CSRFToken)
	})
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "is read-only")
}

// A form on a page of another site changes nothing. The browser sends its stored password, but Origin names the other site. Without a
// configured token, such forms are refused, too.
func TestFormsOfOtherPagesChangeNothing(t *testing.T) {
	t.Parallel()
	basic := func(r *http.Request) { r.SetBasicAuth("anybody", adminToken) }
	for _, form := range []string{"application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""} {
		from := func(r *http.Request) {
			r.Header.Set("Origin", "https://elsewhere.example")
			r.Header.Set("Content-Type", form)
		}
		for name, token := range map[string]string{"guarded": adminToken, "open": ""} {
			h := echo(newAdmin(token, true))
			w := request(h, http.MethodPost, DashboardPath+"/jobs", func(r *http.Request) { basic(r); from(r) })
			require.Equal(t, http.StatusForbidden, w.Code, "%s with %q", name, form)
			for header, value := range map[string]string{"Content-Type": "application/json; charset=utf-8", operators.CSRFHeader: "x"} {
				w := request(h, http.MethodPost, DashboardPath+"/jobs", func(r *http.Request) { basic(r); from(r); r.Header.Set(header, value) })
				require.Equal(t, http.StatusOK, w.Code, "%s with %s", name, header)
			}
		}
		h := admin("", true)
		require.Equal(t, http.StatusForbidden, request(h, http.MethodPost, DashboardPath+"/", nil).Code, "without an Origin header")
	}
	h := admin(adminToken, true)
	w := login(h, adminToken, func(r *http.Request) { r.Header.Set("Origin", "https://elsewhere.example") })
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Empty(t, w.Result().Cookies())
}

func TestSessionIsRenewedByUse(t *testing.T) {
	t.Parallel()
	tokens := newAdmin(adminToken, true).Guard.Tokens
	now := time.Now()
	guard := operators.Guard{Tokens: tokens, Now: func() time.Time { return now }}
	s, ok := tokens.NewSession(adminToken, now)
	require.True(t, ok)
	h := renewing(guard, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	with := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: operators.SessionCookie, Value: s.Cookie()}) }
	require.Empty(t, get(h, "/", with).Result().Cookies())
	now = now.Add(2 * time.Minute)
	require.Empty(t, get(h, "/logout", with).Result().Cookies())
	renewed := get(h, "/", with).Result().Cookies()
	require.Len(t, renewed, 1)
	now = now.Add(operators.SessionIdle - time.Minute)
	require.Empty(t, get(h, "/", with).Result().Cookies(), "the first cookie has expired")
	require.Len(t, get(h, "/", func(r *http.Request) { r.AddCookie(renewed[0]) }).Result().Cookies(), 1)
}

// Attempts to log in are limited and logged like requests with bearer tokens. Requests from a page's scripts get no Basic challenge, so
// browsers show no password dialog.
func TestLoginIsLimited(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newAdmin(adminToken, true)
	a.Guard.Log = slog.New(slog.NewTextHandler(&out, nil))
	h := a.Handler()
	first := login(h, "a-guess", nil)
	require.Equal(t, http.StatusUnauthorized, first.Code)
	require.Contains(t, first.Header().Get("WWW-Authenticate"), "Bearer")
	for code := first.Code; code != http.StatusTooManyRequests; code = login(h, "a-guess", nil).Code {
		require.Equal(t, http.StatusUnauthorized, code)
	}
	require.Contains(t, out.String(), `reason="wrong token"`)
	require.NotContains(t, out.String(), "a-guess")
	for header, value := range map[string]string{"Sec-Fetch-Mode": "cors", operators.CSRFHeader: "x"} {
		w := get(h, "/session", func(r *http.Request) { r.Header.Set(header, value) })
		require.Equal(t, http.StatusUnauthorized, w.Code)
		require.NotContains(t, w.Header().Get("WWW-Authenticate"), "Basic")
	}
	require.Contains(t, get(h, DashboardPath+"/", func(r *http.Request) { r.Header.Set("Sec-Fetch-Mode", "navigate") }).
		Header().Get("WWW-Authenticate"), "Basic")
}

func TestOpenSession(t *testing.T) {
	t.Parallel()
	var s sessionDocument
	require.NoError(t, json.Unmarshal(get(admin("", true), "/session", nil).Body.Bytes(), &s))
	require.NotEmpty(t, s.CSRFToken)
	require.Nil(t, s.ExpiresAt)
	require.Empty(t, login(admin("", true), "", nil).Result().Cookies())
}
