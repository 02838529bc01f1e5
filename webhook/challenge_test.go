package webhook

import (
	"context"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const thisService = "forge.example"

func newChallenge(t *testing.T, cfg ChallengeConfig) *Challenge {
	t.Helper()
	cfg.Origin, cfg.Version = thisService, "1.2.3"
	c := NewChallenge(cfg)
	t.Cleanup(c.transport.CloseIdleConnections)
	return c
}

func allowing(status int, origins ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["WebHook-Allowed-Origin"] = origins
		w.WriteHeader(status)
	}
}

func TestReceiversMustAllowEvents(t *testing.T) {
	t.Parallel()
	const noOrigin, otherOrigin = "has no WebHook-Allowed-Origin", "allows only other origins"
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		wrong  string
	}{
		"this origin":      {allowing(http.StatusOK, thisService), ""},
		"upper case":       {allowing(http.StatusNoContent, "FORGE.example"), ""},
		"any origin":       {allowing(http.StatusNoContent, "*"), ""},
		"another origin":   {allowing(http.StatusOK, "other.example"), otherOrigin},
		"a list":           {allowing(http.StatusOK, thisService+", other.example"), otherOrigin},
		"two headers":      {allowing(http.StatusOK, thisService, "*"), otherOrigin},
		"empty header":     {allowing(http.StatusOK, ""), otherOrigin},
		"no header":        {allowing(http.StatusOK), noOrigin},
		"status 405":       {allowing(http.StatusMethodNotAllowed, "*"), "with status 405"},
		"redirect":         {http.RedirectHandler("/elsewhere", http.StatusTemporaryRedirect).ServeHTTP, "with status 307"},
		"CORS header only": {func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Access-Control-Allow-Origin", "*") }, noOrigin},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, (*httptest.Server).StartTLS, test.answer)
			roots := x509.NewCertPool()
			roots.AddCert(r.Certificate())
			c := newChallenge(t, ChallengeConfig{Guard: NewGuard(true), RootCAs: roots})
			wrong := c.Ask(t.Context(), r.URL+"/in?x=1")
			if test.wrong == "" {
				require.Empty(t, wrong)
			} else {
				require.Contains(t, wrong, test.wrong)
				require.Contains(t, wrong, "OPTIONS at this URL with a 2xx status and WebHook-Allowed-Origin: forge.example (or *)")
			}
			got := r.all()
			require.Len(t, got, 1, "no redirect is followed")
			require.Equal(t, "OPTIONS", got[0].method)
			require.Equal(t, "/in?x=1", got[0].target)
			require.Equal(t, thisService, got[0].header.Get("WebHook-Request-Origin"))
			require.Equal(t, "ForgeRun/1.2.3", got[0].header.Get("User-Agent"))
			require.Empty(t, got[0].body)
		})
	}
}

func TestHostileReceiversOfChallenges(t *testing.T) {
	t.Parallel()
	const soon, late = time.Second, 5 * time.Second
	const allowed = ok + "WebHook-Allowed-Origin: *\r\n"
	long := strings.Repeat("x", 16<<10)
	for name, test := range map[string]struct {
		play    script
		timeout time.Duration
		proven  bool
	}{
		"hangs":                 {hang, soon, false},
		"hangs before the body": {sayAndHang(allowed + "Content-Length: 10\r\n\r\n"), late, true},
		"endless body":          {repeat(allowed+"\r\n", long), late, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, ended := newScript(t, test.play)
			c := newChallenge(t, ChallengeConfig{Guard: NewGuard(true), Timeout: test.timeout})
			require.Equal(t, test.proven, c.Ask(t.Context(), url) == "")
			requireEnded(t, ended)
		})
	}
}

func TestChallengesRevealNoInternalDetails(t *testing.T) {
	t.Parallel()
	canary := newCanary(t)
	lookup := func(addr string) func(string) []netip.Addr {
		return func(string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(addr)} }
	}
	var answers []string
	for _, lookup := range []func(string) []netip.Addr{
		func(string) []netip.Addr { return nil }, lookup("127.0.0.1"), lookup("10.0.0.1"), lookup("169.254.169.254"),
	} {
		c := newChallenge(t, ChallengeConfig{Guard: NewGuard(false)})
		c.dialer.Resolver = resolver(lookup)
		answers = append(answers, c.Ask(t.Context(), "http://inner.example:"+canary.port+"/"))
	}
	// A closed port gets the same answer as a private address.
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	answers = append(answers, newChallenge(t, ChallengeConfig{Guard: NewGuard(true)}).Ask(t.Context(), closed.URL))
	for _, a := range answers {
		require.Equal(t, answers[0], a)
		require.Contains(t, a, "no valid HTTP response within 5s")
	}
	spelled := newChallenge(t, ChallengeConfig{Guard: NewGuard(false)}).Ask(t.Context(), "http://127.0.0.1:"+canary.port+"/")
	require.Equal(t, notPublic, spelled, "the guard refuses before any request")
	canary.requireUnseen(t)
}

func TestChallengesAreBounded(t *testing.T) {
	t.Parallel()
	require.Equal(t, 5*time.Second, NewChallenge(ChallengeConfig{Guard: NewGuard(true)}).cfg.Timeout)
	require.Equal(t, 5*time.Second, NewChallenge(ChallengeConfig{Guard: NewGuard(true), Timeout: time.Hour}).cfg.Timeout)
	ctx, cancel := context.WithCancel(t.Context())
	url, ended := newScript(t, func(gone context.Context, conn *net.TCPConn) {
		cancel()
		hang(gone, conn)
	})
	require.NotEmpty(t, newChallenge(t, ChallengeConfig{Guard: NewGuard(true)}).Ask(ctx, url))
	requireEnded(t, ended)
}

func TestOriginOfTheService(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"https://Forge.example": thisService, "https://forge.example:8443/base": thisService, "http://127.0.0.1:8080": "127.0.0.1",
		"http://[::1]:8080": "::1",
	} {
		require.Equal(t, want, Origin(url))
	}
}

func TestDeliveriesNameTheOriginOfTheChallenge(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{"", thisService} {
		r := newReceiver(t, (*httptest.Server).Start, nil)
		s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: 10 * time.Second, Origin: origin})
		require.Empty(t, sendTo(t, s, r.URL).Attempt.Error)
		require.Equal(t, origin, r.all()[0].header.Get("WebHook-Request-Origin"))
	}
}
