package monitoring

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/operators"
)

// operatorAuth serves operators only: those who know the token.
type operatorAuth struct {
	tokens   operators.Tokens // none: none is needed
	log      *slog.Logger
	attempts *authlimit.Limiter
	source   func(*http.Request) netip.Addr
}

// keyPrefix begins the API key of a client, which is not accepted here.
const keyPrefix = "frk_"

// only serves operators. Others are asked for the token, and logged.
func (a operatorAuth) only(next http.Handler) http.Handler {
	if a.tokens.None() {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, source := presented(r), a.source(r)
		if given != "" {
			if wait := a.attempts.Check(source, given); wait > 0 {
				a.refused(r, source, "too many failures before")
				w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
				refuse(w, http.StatusTooManyRequests, "Too many attempts with a wrong token came from this address. "+
					"Wait as Retry-After says; this one was not looked at.")
				return
			}
		}
		if operator, ok := a.tokens.Find(given); ok {
			a.attempts.Succeeded(given)
			if operator.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead {
				refuse(w, http.StatusForbidden, "This token may read only.")
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		if given != "" {
			a.attempts.Failed(source, given)
		}
		a.refused(r, source, reasonOf(given))
		w.Header().Set("WWW-Authenticate", `Basic realm="ForgeRun admin: the token is the password"`)
		http.Error(w, "This page needs the admin token, as a bearer token or as the password.", http.StatusUnauthorized)
	})
}

// meant serves requests that were meant for this listener: those for one of its
// hosts, if they are given, that no page of another origin made a browser send. All
// ports of localhost are one site.
func (a Admin) meant(next http.Handler) http.Handler {
	hosts := a.Hosts
	if hosts == nil && a.Operators.None() {
		hosts = localhosts.Only("")
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case hosts != nil && !hosts(r.Host):
			refuse(w, http.StatusMisdirectedRequest, fmt.Sprintf("This listener is for the machine that it runs on, and the request is for "+
				"the host %.100q. Call it as localhost, or set FORGERUN_ADMIN_TOKEN to guard it.", r.Host))
		case r.Header.Get("Sec-Fetch-Site") == "cross-site", r.Header.Get("Sec-Fetch-Site") == "same-site" && !followsLink(r):
			refuse(w, http.StatusForbidden, "A page of another site or port sent this request. Open the address by itself.")
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// followsLink reports whether a browser opens a page in a window of its own: who had it do so
// cannot read it, and nothing is changed.
func followsLink(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// reasonOf says what is wrong with what was presented.
func reasonOf(given string) string {
	switch {
	case given == "":
		return "no token"
	case strings.HasPrefix(given, keyPrefix):
		return "a client's API key"
	}
	return "wrong token"
}

// refused logs failed authentications, a few lines a second, without what was presented.
func (a operatorAuth) refused(r *http.Request, source netip.Addr, reason string) {
	if omitted, due := a.attempts.Line(); due {
		a.log.LogAttrs(r.Context(), slog.LevelWarn, "admin authentication failed", slog.String("reason", reason),
			slog.String("remote_address", source.String()), slog.String("route", r.Pattern), slog.Int("omitted", omitted))
	}
}

// remote is the address at the other end of the connection.
func remote(r *http.Request) netip.Addr {
	addr, _ := netip.ParseAddrPort(r.RemoteAddr)
	return addr.Addr().Unmap()
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
