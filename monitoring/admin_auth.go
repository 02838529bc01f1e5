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

// operatorAuth serves operators only: those who know the token.
type operatorAuth struct {
	token string // empty: see local
	log   *slog.Logger
	lines *throttle
}

// keyPrefix begins the API key of a client, which is not accepted here.
const keyPrefix = "frk_"

// only serves operators. Others are asked for the token, and logged.
func (a operatorAuth) only(next http.Handler) http.Handler {
	if a.token == "" {
		return local(next)
	}
	want := sha256.Sum256([]byte(a.token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := presented(r)
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		a.refused(r, given)
		w.Header().Set("WWW-Authenticate", `Basic realm="ForgeRun admin: the token is the password"`)
		http.Error(w, "This page needs the admin token, as a bearer token or as the password.", http.StatusUnauthorized)
	})
}

// local serves requests whose Host is localhost or an address, no other name (DNS rebinding).
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

// refused logs failed authentications, at most one line a second, without what was presented.
func (a operatorAuth) refused(r *http.Request, given string) {
	reason := "wrong token"
	switch {
	case given == "":
		reason = "no token"
	case strings.HasPrefix(given, keyPrefix):
		reason = "a client's API key"
	}
	if n, due := a.lines.add(1, time.Now()); due {
		a.log.LogAttrs(r.Context(), slog.LevelWarn, "admin authentication failed",
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
