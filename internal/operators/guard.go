package operators

import (
	"context"
	"crypto/hmac"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/internal/authlimit"
)

// Guard decides which requests come from operators.
type Guard struct {
	Tokens   Tokens // if empty, every request is allowed; the listener must then be on loopback
	Ended    Ended
	Attempts *authlimit.Limiter
	Source   func(*http.Request) netip.Addr
	Log      *slog.Logger
	Now      func() time.Time // nil: time.Now
}

// Refusal is the reason to refuse a request.
type Refusal struct {
	Status     int // 401, 403, 429 or 503
	Detail     string
	RetryAfter time.Duration // set for 429 and 503

	Challenge string // value of WWW-Authenticate for 401
}

// Challenge is sent if a request has no valid token. A browser that opens a page then asks the user for a password.
const Challenge = `Basic realm="ForgeRun admin: the token is the password"`

// pageChallenge is sent to scripts of a page. Browsers show no password dialog for a Bearer challenge, so the page can show its login form.
const pageChallenge = `Bearer realm="ForgeRun admin"`

// keyPrefix is the prefix of clients' API keys. The operator API refuses these keys.
const keyPrefix = "frk_"

// Check returns the operator of a request, or the reason to refuse it. It tries the bearer token, the session and basic
// authentication, in this order. It counts and logs failed attempts. The log never contains the credentials.
func (g Guard) Check(r *http.Request) (Operator, *Refusal) {
	if g.Tokens.None() {
		if changes(r) && !deliberate(r) {
			return Operator{}, forged("A request that changes something needs the content type application/json or the header " + CSRFHeader + ".")
		}
		return Operator{Name: DefaultName}, nil
	}
	if s, ok, refusal := g.validSession(r); ok || refusal != nil {
		if refusal != nil {
			return Operator{}, refusal
		}
		if changes(r) && !hmac.Equal([]byte(r.Header.Get(CSRFHeader)), []byte(s.CSRFToken)) {
			return Operator{}, forged("A request of a session that changes something needs the session's token in the header " + CSRFHeader + ".")
		}
		return s.Operator, mayChange(s.Operator, r)
	}
	given := presented(r)
	operator, refusal := g.find(r, given)
	if refusal != nil {
		return Operator{}, refusal
	}
	// A browser may add a stored password to a request that another site's page makes. Such a request has the header Origin.
	if changes(r) && r.Header.Get("Origin") != "" && !deliberate(r) {
		return Operator{}, forged(
			"A request of a page that changes something needs the content type application/json or the header " + CSRFHeader + ".")
	}
	return operator, mayChange(operator, r)
}

func (g Guard) find(r *http.Request, given string) (Operator, *Refusal) {
	source := g.Source(r)
	if given != "" {
		if wait := g.Attempts.Check(source, given); wait > 0 {
			g.log(r, source, "too many failures before")
			return Operator{}, &Refusal{Status: http.StatusTooManyRequests, RetryAfter: wait,
				Detail: "Too many attempts with a wrong token came from this address. " +
					"Wait for Retry-After; this request was not processed."}
		}
	}
	if operator, ok := g.Tokens.Find(given); ok {
		g.Attempts.Succeeded(given)
		return operator, nil
	}
	if given != "" {
		g.Attempts.Failed(source, given)
	}
	reason, refusal := reasonOf(given), &Refusal{Status: http.StatusUnauthorized, Challenge: Challenge,
		Detail: "This page needs the admin token, as a bearer token or as the password."}
	if mode := r.Header.Get("Sec-Fetch-Mode"); mode != "" && mode != "navigate" || r.Header.Get(CSRFHeader) != "" {
		refusal.Challenge = pageChallenge
	}
	if _, err := r.Cookie(SessionCookie); err == nil && given == "" {
		reason, refusal.Detail = "session ended", "The session has ended: log in again."
	}
	g.log(r, source, reason)
	return Operator{}, refusal
}

func mayChange(o Operator, r *http.Request) *Refusal {
	if o.ReadOnly && changes(r) {
		return &Refusal{Status: http.StatusForbidden, Detail: "This token is read-only."}
	}
	return nil
}

func forged(detail string) *Refusal { return &Refusal{Status: http.StatusForbidden, Detail: detail} }

func changes(r *http.Request) bool { return r.Method != http.MethodGet && r.Method != http.MethodHead }

// deliberate reports whether r has a header that pages of other sites cannot send. A browser sends a CORS preflight before such a request,
// and the server refuses all preflights.
func deliberate(r *http.Request) bool {
	mediaType, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	return r.Header.Get(CSRFHeader) != "" || strings.EqualFold(strings.TrimSpace(mediaType), "application/json")
}

// validSession returns the session of a request, unless the session was logged out. If storage cannot be read, sessions are refused. Tokens
// still work.
func (g Guard) validSession(r *http.Request) (Session, bool, *Refusal) {
	s, ok := g.session(r)
	if !ok {
		return s, false, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookupTime)
	defer cancel()
	ended, err := g.Ended.LoggedOut(ctx, s.nonce)
	if err != nil {
		return s, false, unknown("The session cannot be checked, because storage is not available.")
	}
	return s, !ended, nil
}

// lookupTime limits the time to check a session in storage.
const lookupTime = 2 * time.Second

func unknown(detail string) *Refusal {
	return &Refusal{Status: http.StatusServiceUnavailable, RetryAfter: lookupTime,
		Detail: detail + " Try again, or send the token itself as a bearer token or as the password."}
}

// session returns the session of a request's cookie. If the request has a bearer token, cookies are ignored: only a program sends a bearer
// token.
func (g Guard) session(r *http.Request) (Session, bool) {
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		return Session{}, false
	}
	for _, c := range r.CookiesNamed(SessionCookie) { // other servers on this host may have set cookies of this name
		if s, ok := g.Tokens.Session(c.Value, g.now()); ok {
			return s, true
		}
	}
	return Session{}, false
}

func (g Guard) now() time.Time {
	if g.Now == nil {
		return time.Now()
	}
	return g.Now()
}

// Known reports whether the request has valid credentials, or no tokens are configured. It does not check whether the session was logged
// out, and does not count failures. Only Check may grant access.
func (g Guard) Known(r *http.Request) bool {
	_, session := g.session(r)
	_, token := g.Tokens.Find(presented(r))
	return g.Tokens.None() || session || token
}

// Login starts a session for the owner of the given token.
func (g Guard) Login(r *http.Request, token string) (Session, *Refusal) {
	if r.Header.Get("Origin") != "" && !deliberate(r) {
		return Session{}, forged("A login from a web page needs the header " + CSRFHeader + ".")
	}
	if g.Tokens.None() {
		return openSession, nil
	}
	if _, refusal := g.find(r, token); refusal != nil {
		refusal.Challenge = pageChallenge
		return Session{}, refusal
	}
	s, _ := g.Tokens.NewSession(token, g.now())
	return s, nil
}

// openSession is the session of every request if no tokens are configured.
var openSession = Session{Operator: Operator{Name: DefaultName}, CSRFToken: "none-is-needed"}

// Session returns the session of the request's cookie. If the request has a token instead of a cookie, it returns a session without an
// expiry.
func (g Guard) Session(r *http.Request) (Session, *Refusal) {
	if g.Tokens.None() {
		return openSession, nil
	}
	if s, ok, refusal := g.validSession(r); ok || refusal != nil {
		return s, refusal
	}
	operator, refusal := g.Check(r)
	if refusal != nil {
		return Session{}, refusal
	}
	return Session{Operator: operator, CSRFToken: openSession.CSRFToken}, nil
}

// Logout ends the session of a request. Copies of the session's cookie become invalid too.
func (g Guard) Logout(r *http.Request) *Refusal {
	s, ok := g.session(r)
	if !ok {
		return nil
	}
	if err := g.Ended.Logout(r.Context(), s.nonce, s.issued.Add(SessionLength)); err != nil {
		return unknown("This browser has dropped the session. Copies of its cookie stay valid until they expire, because storage " +
			"is not available.")
	}
	g.Log.LogAttrs(r.Context(), slog.LevelInfo, "operator logged out", slog.String("operator", s.Operator.Name))
	return nil
}

// Renew returns a cookie with a later expiry, or "". It renews a session at most once a minute.
func (g Guard) Renew(r *http.Request) string {
	if s, ok := g.session(r); ok {
		if renewed, due := s.Renewed(g.now()); due {
			return cookie(r, renewed.Cookie(), int(SessionLength.Seconds())).String()
		}
	}
	return ""
}

// Header sets the headers of a refusal.
func (f *Refusal) Header(h http.Header) {
	switch f.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", f.Challenge)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		h.Set("Retry-After", strconv.Itoa(int((f.RetryAfter+time.Second-1)/time.Second)))
	}
}

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

func reasonOf(given string) string {
	switch {
	case given == "":
		return "no token"
	case strings.HasPrefix(given, keyPrefix):
		return "a client's API key"
	}
	return "wrong token"
}

// log writes a limited number of lines per second. The next line has the number of omitted lines.
func (g Guard) log(r *http.Request, source netip.Addr, reason string) {
	omitted, due := g.Attempts.Line(reason)
	if !due {
		return
	}
	attrs := []slog.Attr{
		slog.String("reason", reason), slog.String("remote_address", source.String()), slog.String("route", r.Pattern),
		slog.Any("omitted", omitted),
	}
	if client, err := uuid.Parse(r.PathValue("id")); err == nil && strings.Contains(r.Pattern, "/clients/{id}") {
		attrs = append(attrs, slog.String("client_id", client.String()))
	}
	g.Log.LogAttrs(r.Context(), slog.LevelWarn, "admin authentication failed", attrs...)
}
