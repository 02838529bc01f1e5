package monitoring

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"
)

// guard lets operators through: those who know the token.
type guard struct {
	token string // empty: everybody is one
	log   *slog.Logger
	lines *seldom
}

// keyPrefix begins the API key of a client, which opens nothing here.
const keyPrefix = "frk_"

// only serves operators. Everybody else is asked for the token, and logged:
// nobody finds a token of 16 characters by trying before the log is noticed.
func (g guard) only(next http.Handler) http.Handler {
	if g.token == "" {
		return local(next)
	}
	want := sha256.Sum256([]byte(g.token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := presented(r)
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		g.refused(r, given)
		w.Header().Set("WWW-Authenticate", `Basic realm="ForgeRun admin: the token is the password"`)
		http.Error(w, "This page needs the admin token, as a bearer token or as the password.", http.StatusUnauthorized)
	})
}

// local serves those who name this machine, as one must who is on it. A page of
// another site that has its own name point here does not.
func local(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if host != "localhost" && net.ParseIP(strings.Trim(host, "[]")) == nil {
			http.Error(w, "Without FORGERUN_ADMIN_TOKEN this page is for localhost and addresses only, not for names.", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refused logs a failed authentication, without what was presented. Of many a
// second the first stands for all, with their number.
func (g guard) refused(r *http.Request, given string) {
	reason := "wrong token"
	switch {
	case given == "":
		reason = "no token"
	case strings.HasPrefix(given, keyPrefix):
		reason = "a client's API key"
	}
	if n, due := g.lines.add(1, time.Now()); due {
		g.log.LogAttrs(r.Context(), slog.LevelWarn, "admin authentication failed",
			slog.String("reason", reason), slog.String("remote", r.RemoteAddr), slog.String("route", r.Pattern), slog.Int("refused", n))
	}
}

// presented is the token that a request has, "" for none.
func presented(r *http.Request) string {
	if _, password, ok := r.BasicAuth(); ok {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return token
	}
	return ""
}
