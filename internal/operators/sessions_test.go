package operators

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Unix(1_900_000_000, 0)

func tokens(t *testing.T, operators, readers string) Tokens {
	t.Helper()
	parsed, err := Parse(operators, readers)
	require.NoError(t, err)
	return parsed
}

func TestSession(t *testing.T) {
	t.Parallel()
	here := tokens(t, "ann.b-2:"+first+",bob:"+second, "")
	s, ok := here.NewSession(first, start)
	require.True(t, ok)
	require.Equal(t, start.Add(SessionIdle), s.ExpiresAt)
	require.NotContains(t, s.Cookie(), first)
	other, ok := here.NewSession(first, start)
	require.True(t, ok)
	require.NotEqual(t, s.Cookie(), other.Cookie(), "each login has its own cookie")
	require.NotEqual(t, s.CSRFToken, other.CSRFToken)

	there := tokens(t, "bob:"+second+",ann.b-2:"+first, "") // another process
	got, ok := there.Session(s.Cookie(), start.Add(time.Minute))
	require.True(t, ok)
	require.Equal(t, "ann.b-2", got.Operator.Name)
	require.Equal(t, s.CSRFToken, got.CSRFToken)

	_, ok = here.NewSession("nobody's-long-token", start)
	require.False(t, ok)
	reader, ok := tokens(t, "", "ann.b-2:"+first).Session(s.Cookie(), start)
	require.True(t, ok)
	require.True(t, reader.Operator.ReadOnly, "the rights come from the tokens and not from the cookie")
}

func TestSessionEnds(t *testing.T) {
	t.Parallel()
	here := tokens(t, "ann:"+first, "")
	s, _ := here.NewSession(first, start)
	alive := func(s Session, after time.Duration) bool {
		_, ok := here.Session(s.Cookie(), start.Add(after))
		return ok
	}
	require.True(t, alive(s, SessionIdle-time.Second))
	require.False(t, alive(s, SessionIdle))
	require.False(t, alive(s, -clockSkew-time.Second), "the session starts in the future")
	same, due := s.Renewed(start.Add(renewEvery - time.Second))
	require.False(t, due)
	require.Equal(t, s.Cookie(), same.Cookie())
	now := time.Duration(0)
	for now < SessionLength-10*time.Minute {
		now += 10 * time.Minute
		s, due = s.Renewed(start.Add(now))
		require.True(t, due)
		require.True(t, alive(s, now))
	}
	require.Equal(t, start.Add(SessionLength), s.ExpiresAt, "renewals do not exceed SessionLength")
	require.False(t, alive(s, SessionLength))
}

func TestSessionRefuses(t *testing.T) {
	t.Parallel()
	here := tokens(t, "ann:"+first+",bob:"+second, "dash:"+third)
	s, _ := here.NewSession(first, start)
	cookie := s.Cookie()
	fields := strings.Split(cookie, ":")
	with := func(i int, value string) string {
		changed := strings.Split(cookie, ":")
		changed[i] = value
		return strings.Join(changed, ":")
	}
	for name, forged := range map[string]string{
		"nothing":         "",
		"colons":          "::::",
		"another name":    with(0, "bob"),
		"a reader":        with(0, "dash"),
		"unknown name":    with(0, "eve"),
		"issued later":    with(1, "1900000100"),
		"seen later":      with(2, "1900000100"),
		"seen as text":    with(2, "+1900000000"),
		"no time":         with(1, "x"),
		"another nonce":   with(3, "AAAA"),
		"no signature":    with(4, ""),
		"CSRF signature":  with(4, s.CSRFToken),
		"cut":             cookie[:len(cookie)-1],
		"longer":          cookie + "A",
		"one field more":  cookie + ":x",
		"one field fewer": strings.Join(fields[:4], ":"),
	} {
		_, ok := here.Session(forged, start)
		require.False(t, ok, name)
	}
	for name, there := range map[string]Tokens{
		"no tokens":                  {},
		"the token was removed":      tokens(t, "bob:"+second, ""),
		"the token was replaced":     tokens(t, "ann:0000000000000000", ""),
		"another token has the name": tokens(t, "ann:"+second+",bob:"+first, ""),
		"the token has another name": tokens(t, "eve:"+first, ""),
	} {
		_, ok := there.Session(cookie, start)
		require.False(t, ok, name)
	}
	_, ok := here.Session(cookie, start)
	require.True(t, ok)
}

func TestSessionCookie(t *testing.T) {
	t.Parallel()
	s, _ := tokens(t, first, "").NewSession(first, start)
	for _, c := range []struct {
		url, proto string
		secure     bool
	}{
		{"http://localhost/", "", false}, {"http://localhost/", "http", false},
		{"https://localhost/", "", true}, {"http://localhost/", "HTTPS", true},
	} {
		r := httptest.NewRequest(http.MethodPost, c.url, nil)
		r.Header.Set("X-Forwarded-Proto", c.proto)
		w := httptest.NewRecorder()
		s.SetCookie(w, r)
		got := w.Result().Cookies()
		require.Len(t, got, 1)
		require.Equal(t, s.Cookie(), got[0].Value, "the value is valid in a cookie")
		require.Equal(t, "/", got[0].Path)
		require.True(t, got[0].HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, got[0].SameSite)
		require.Equal(t, c.secure, got[0].Secure, c)
		require.Equal(t, int(SessionLength.Seconds()), got[0].MaxAge)
		w = httptest.NewRecorder()
		ClearCookie(w, r)
		require.Contains(t, w.Header().Get("Set-Cookie"), SessionCookie+"=; Path=/; Max-Age=0; HttpOnly")
	}
}
