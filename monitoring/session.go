package monitoring

import (
	"net/http"
	"time"

	"github.com/forgerun/forgerun/internal/operators"
)

// maxLogin is the maximum size of a login form, in bytes.
const maxLogin = 4 << 10

func sessions(mux *http.ServeMux, guard operators.Guard) {
	mux.HandleFunc("POST /login", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
		if err := r.ParseForm(); err != nil {
			refuse(w, http.StatusBadRequest, "The body must be a form with the field token.")
			return
		}
		s, refusal := guard.Login(r, r.PostForm.Get("token"))
		if refusal == nil && !guard.Tokens.None() {
			s.SetCookie(w, r)
		}
		writeSession(w, s, refusal)
	})
	mux.HandleFunc("POST /logout", func(w http.ResponseWriter, r *http.Request) {
		operators.ClearCookie(w, r)
		if refusal := guard.Logout(r); refusal != nil {
			writeSession(w, operators.Session{}, refusal)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /session", func(w http.ResponseWriter, r *http.Request) {
		s, refusal := guard.Session(r)
		writeSession(w, s, refusal)
	})
}

func writeSession(w http.ResponseWriter, s operators.Session, refusal *operators.Refusal) {
	if refusal != nil {
		refusal.Header(w.Header())
		refuse(w, refusal.Status, refusal.Detail)
		return
	}
	var expires *time.Time
	if !s.ExpiresAt.IsZero() {
		utc := s.ExpiresAt.UTC()
		expires = &utc
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"operator": s.Operator.Name, "read_only": s.Operator.ReadOnly, "csrf_token": s.CSRFToken, "expires_at": expires,
	})
}

func renewing(guard operators.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/logout" {
			if cookie := guard.Renew(r); cookie != "" {
				w.Header().Add("Set-Cookie", cookie)
			}
		}
		next.ServeHTTP(w, r)
	})
}
