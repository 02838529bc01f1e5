package operators

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A session starts at login and is stored in a cookie. The cookie contains the operator, the start and the last use. It is signed with a
// key derived from the token's hash, so every process can check the signature. If the token is removed from the configuration, its sessions
// end. Storage lists the logged-out sessions until they expire, so copies of their cookies are refused.
const (
	SessionIdle   = 30 * time.Minute // maximum time between two requests
	SessionLength = 12 * time.Hour   // maximum duration of a session
	renewEvery    = time.Minute
	clockSkew     = 5 * time.Minute // allowed difference between the clocks of processes
)

// SessionCookie is the name of the cookie.
const SessionCookie = "forgerun_session"

// CSRFHeader carries the session's CSRF token in requests that change something. Pages of other origins can neither read the token nor set
// the header.
const CSRFHeader = "X-CSRF-Token"

// Signing keys are derived from a token's hash and one of these labels.
const (
	sessionLabel = "forgerun operator session v1"
	csrfLabel    = "forgerun operator csrf v1"
)

// Ended is the store of logged-out sessions, which all processes share.
type Ended interface {
	Logout(ctx context.Context, session string, expires time.Time) error
	LoggedOut(ctx context.Context, session string) (bool, error)
}

// Session is one login of an operator.
type Session struct {
	Operator  Operator
	CSRFToken string
	ExpiresAt time.Time // zero: never

	issued, seen time.Time
	nonce        string
	hash         [sha256.Size]byte // of the operator's token
}

// NewSession starts a session for the token's operator. It returns false for an unknown token.
func (t Tokens) NewSession(token string, now time.Time) (Session, bool) {
	hash := sha256.Sum256([]byte(token))
	for _, k := range t.all {
		if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
			now = now.Truncate(time.Second)
			return k.session(now, now, rand.Text()), true
		}
	}
	return Session{}, false
}

// Session parses the value of a cookie. It returns false if the signature is wrong, the token was removed, or the session has expired.
func (t Tokens) Session(cookie string, now time.Time) (Session, bool) {
	fields := strings.Split(cookie, ":")
	if len(fields) != 5 {
		return Session{}, false
	}
	issued, err1 := strconv.ParseInt(fields[1], 10, 64)
	seen, err2 := strconv.ParseInt(fields[2], 10, 64)
	if err1 != nil || err2 != nil {
		return Session{}, false
	}
	for _, k := range t.all {
		if k.Name != fields[0] {
			continue
		}
		s := k.session(time.Unix(issued, 0), time.Unix(seen, 0), fields[3])
		if !hmac.Equal([]byte(s.Cookie()), []byte(cookie)) {
			return Session{}, false
		}
		ended := !now.Before(s.ExpiresAt) || s.issued.After(now.Add(clockSkew)) || s.seen.After(now.Add(clockSkew))
		return s, !ended
	}
	return Session{}, false
}

func (k known) session(issued, seen time.Time, nonce string) Session {
	s := Session{Operator: k.Operator, issued: issued, seen: seen, nonce: nonce, hash: k.hash}
	s.ExpiresAt = seen.Add(SessionIdle)
	if end := issued.Add(SessionLength); end.Before(s.ExpiresAt) {
		s.ExpiresAt = end
	}
	s.CSRFToken = s.mac(csrfLabel, s.Operator.Name+":"+strconv.FormatInt(issued.Unix(), 10)+":"+nonce)
	return s
}

// mac signs text with a key derived from the token's hash and the label.
func (s Session) mac(label, text string) string {
	key := hmac.New(sha256.New, s.hash[:])
	key.Write([]byte(label))
	sum := hmac.New(sha256.New, key.Sum(nil))
	sum.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil))
}

// Cookie returns the value of the session's cookie.
func (s Session) Cookie() string {
	text := strings.Join([]string{
		s.Operator.Name, strconv.FormatInt(s.issued.Unix(), 10), strconv.FormatInt(s.seen.Unix(), 10), s.nonce,
	}, ":")
	return text + ":" + s.mac(sessionLabel, text)
}

// Renewed returns the same session and false if the session was used in the last minute. Otherwise it returns a copy with `now` as the
// time of the last use, and true. The caller must then send a new cookie.
func (s Session) Renewed(now time.Time) (Session, bool) {
	if now.Sub(s.seen) < renewEvery {
		return s, false
	}
	return known{s.Operator, s.hash}.session(s.issued, now.Truncate(time.Second), s.nonce), true
}

// SetCookie sets the session's cookie in a response.
func (s Session) SetCookie(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, cookie(r, s.Cookie(), int(SessionLength.Seconds())))
}

// ClearCookie makes the browser delete the cookie. It does not end the session.
func ClearCookie(w http.ResponseWriter, r *http.Request) { http.SetCookie(w, cookie(r, "", -1)) }

func cookie(r *http.Request, value string, maxAge int) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // Secure is false for plain HTTP, because browsers send a Secure cookie only over TLS
		Name: SessionCookie, Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https"),
	}
}
