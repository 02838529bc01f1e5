package operators

import (
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/authlimit"
)

// Guard says which requests are those of operators. It is the only place that does.
type Guard struct {
	Tokens   Tokens // none: everybody is an operator; the listener must then be on loopback
	Attempts *authlimit.Limiter
	Source   func(*http.Request) netip.Addr // where a request comes from
	Log      *slog.Logger
}

// Refusal is why a request is not served.
type Refusal struct {
	Status     int // 401, 403 or 429
	Detail     string
	RetryAfter time.Duration // of 429
}

// Challenge asks who is refused for want of a token to present one.
const Challenge = `Basic realm="ForgeRun admin: the token is the password"`

// keyPrefix begins the API key of a client, which is not accepted here.
const keyPrefix = "frk_"

// Check says whose request it is, or why it is refused. Failures are counted and logged, without what was presented.
func (g Guard) Check(r *http.Request) (Operator, *Refusal) {
	if g.Tokens.None() {
		return Operator{Name: DefaultName}, nil
	}
	given, source := presented(r), g.Source(r)
	if given != "" {
		if wait := g.Attempts.Check(source, given); wait > 0 {
			g.log(r, source, "too many failures before")
			return Operator{}, &Refusal{http.StatusTooManyRequests, "Too many attempts with a wrong token came from this address. " +
				"Wait as Retry-After says; this one was not looked at.", wait}
		}
	}
	operator, ok := g.Tokens.Find(given)
	switch {
	case ok:
		g.Attempts.Succeeded(given)
	case given != "":
		g.Attempts.Failed(source, given)
	}
	switch {
	case !ok:
		g.log(r, source, reasonOf(given))
		return Operator{}, &Refusal{Status: http.StatusUnauthorized,
			Detail: "This page needs the admin token, as a bearer token or as the password."}
	case operator.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return Operator{}, &Refusal{Status: http.StatusForbidden, Detail: "This token may read only."}
	}
	return operator, nil
}

// Header sets the headers that belong to a refusal.
func (f *Refusal) Header(h http.Header) {
	switch f.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", Challenge)
	case http.StatusTooManyRequests:
		h.Set("Retry-After", strconv.Itoa(int((f.RetryAfter+time.Second-1)/time.Second)))
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

// log tells of failures, a few lines a second.
func (g Guard) log(r *http.Request, source netip.Addr, reason string) {
	if omitted, due := g.Attempts.Line(); due {
		g.Log.LogAttrs(r.Context(), slog.LevelWarn, "admin authentication failed", slog.String("reason", reason),
			slog.String("remote_address", source.String()), slog.String("route", r.Pattern), slog.Int("omitted", omitted))
	}
}

type contextKey struct{}

// With gives a context that knows whose request it belongs to.
func With(ctx context.Context, o Operator) context.Context {
	return context.WithValue(ctx, contextKey{}, o)
}

// From says whose request a context belongs to; the zero Operator if With was not used.
func From(ctx context.Context) Operator {
	o, _ := ctx.Value(contextKey{}).(Operator)
	return o
}
