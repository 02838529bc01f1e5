package monitoring

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Admin is the admin listener: metrics and health for machines, dashboards
// and profiles for operators.
type Admin struct {
	Registry *prometheus.Registry
	// Ready reports whether the process can work, and a value to show.
	Ready func(ctx context.Context) (ok bool, report any)
	// Token guards what is not for machines: as a bearer token, or as the
	// password of basic authentication so that a browser can use it. Empty:
	// no guard; the listener must then be on loopback.
	Token string
	// Dashboard is mounted at DashboardPath; nil for none.
	Dashboard http.Handler
}

// DashboardPath is where the queue dashboard is mounted.
const DashboardPath = "/asynqmon"

//go:embed admin.html
var adminPage []byte

// Handler gives the routes of the listener.
func (a Admin) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{Registry: a.Registry, EnableOpenMetrics: true}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /debug/pprof/", a.guard(http.HandlerFunc(pprof.Index)))
	mux.Handle("GET /debug/pprof/profile", a.guard(http.HandlerFunc(pprof.Profile)))
	mux.Handle("GET /debug/pprof/trace", a.guard(http.HandlerFunc(pprof.Trace)))
	mux.Handle("GET /debug/pprof/symbol", a.guard(http.HandlerFunc(pprof.Symbol)))
	mux.Handle("GET /debug/pprof/cmdline", a.guard(http.HandlerFunc(pprof.Cmdline)))
	if a.Dashboard != nil {
		mux.Handle(DashboardPath+"/", a.guard(a.Dashboard))
		mux.Handle("GET "+DashboardPath, http.RedirectHandler(DashboardPath+"/", http.StatusFound))
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(adminPage)
	})
	return mux
}

func (a Admin) readyz(w http.ResponseWriter, r *http.Request) {
	ok, report := a.Ready(r.Context())
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, report)
}

func (a Admin) guard(next http.Handler) http.Handler {
	if a.Token == "" {
		return next
	}
	want := sha256.Sum256([]byte(a.Token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := sha256.Sum256([]byte(presented(r)))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="ForgeRun admin: the token is the password"`)
			http.Error(w, "This page needs the admin token, as a bearer token or as the password.", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
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

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client has gone; nobody is left to tell
}
