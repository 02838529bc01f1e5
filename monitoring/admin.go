package monitoring

import (
	"context"
	_ "embed"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/singleflight"

	"github.com/forgerun/forgerun/internal/operators"
)

// Admin is the admin listener without the operator API. It serves metrics and health to machines, and the console, dashboards and
// profiles to operators.
type Admin struct {
	Registry *prometheus.Registry
	// Ready reports whether the process can work. `report` becomes part of the response.
	Ready func(ctx context.Context) (ok bool, report any)
	// Guard authenticates operators for all pages that are not for machines.
	Guard operators.Guard
	// Hosts reports whether requests for a host are allowed. If Hosts is nil, a listener with a token allows every host. A listener without
	// a token then allows only names of this machine.
	Hosts     func(string) bool
	Dashboard http.Handler
	Docs      http.Handler
	// Console serves the console's page at /, and the console's files below ConsolePath.
	Console http.Handler
	// Log gets a line for each failed scrape.
	Log *slog.Logger
}

// Paths of the queue dashboard, the console's files and the page about this process.
const (
	DashboardPath = "/asynqmon"
	ConsolePath   = "/console/"
	processPath   = "/process"
)

//go:embed admin.html
var adminPage []byte

// Handler returns the routes of the listener.
func (a Admin) Handler() http.Handler {
	guard, mux := a.Guard, http.NewServeMux()
	mux.Handle("GET /metrics", a.metrics())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", a.readyz)
	for path, profile := range map[string]http.HandlerFunc{
		"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace, "symbol": pprof.Symbol, "cmdline": pprof.Cmdline,
	} {
		mux.Handle("GET /debug/pprof/"+path, requireOperator(guard, limitProfile(profile)))
	}
	mux.Handle(DashboardPath+"/", requireOperator(guard, a.Dashboard))
	mux.Handle("GET "+DashboardPath, http.RedirectHandler(DashboardPath+"/", http.StatusFound))
	mux.Handle("GET /docs", requireOperator(guard, a.Docs))
	mux.HandleFunc("GET "+processPath, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(adminPage)
	})
	sessions(mux, guard)
	mux.Handle("GET /{$}", a.Console)
	mux.Handle("GET "+ConsolePath, a.Console)
	return secured(a.checkOrigin(renewing(guard, exact(mux))))
}

// exact returns 404 for a path that ServeMux would redirect, such as //metrics.
func exact(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		escaped := r.URL.EscapedPath()
		if escaped == "/" || (path.Clean(escaped) == strings.TrimSuffix(escaped, "/") && escaped != "//") {
			mux.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})
}

// Limits of a scrape. Each collector gives up after a second or two, so that a scrape still returns the metrics of the other collectors. If
// a collector hangs anyway, scrapeTimeout ends the scrape.
const (
	scrapesAtOnce = 8
	scrapeTimeout = 10 * time.Second
)

// metrics serves the format that the request asks for: text, OpenMetrics with exemplars, or protobuf with native histograms. If a collector
// fails, only its own metrics are missing. Concurrent scrapes run the collectors only once.
func (a Admin) metrics() http.Handler {
	var group singleflight.Group
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err, _ := group.Do("", func() (any, error) { return a.Registry.Gather() })
		return families.([]*dto.MetricFamily), err // shared with other scrapes, so read-only
	})
	return promhttp.HandlerFor(gather, promhttp.HandlerOpts{
		Registry: a.Registry, EnableOpenMetrics: true,
		ErrorHandling: promhttp.ContinueOnError, ErrorLog: slog.NewLogLogger(a.Log.Handler(), slog.LevelWarn),
		MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTimeout,
	})
}

func (a Admin) readyz(w http.ResponseWriter, r *http.Request) {
	ok, report := a.Ready(r.Context())
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, report)
}

// maxProfile is the maximum duration of a profile or trace, in seconds.
const maxProfile = 60

// limitProfile refuses profiles longer than maxProfile, since profiling slows the process down.
func limitProfile(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if given := r.FormValue("seconds"); given != "" {
			seconds, err := strconv.ParseFloat(given, 64)
			if within := seconds > 0 && seconds <= maxProfile; err != nil || !within {
				http.Error(w, "seconds must be a number above 0 and at most 60.", http.StatusBadRequest)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// policy lets pages load resources only from this listener, and allows inline scripts and styles.
const policy = "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// secured keeps pages out of caches and frames.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Cache-Control", "no-store")
		header.Set("Content-Security-Policy", policy)
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		next.ServeHTTP(w, r)
	})
}

func refuse(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{ // an error means that the connection is lost
		"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail,
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the connection is lost
}
