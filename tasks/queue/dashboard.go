package queue

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"

	"github.com/hibiken/asynqmon"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// DashboardHandler serves asynqmon, the queue dashboard, below rootPath (such as "/asynqmon"). The dashboard is read-only, because its
// buttons would change only Redis, not the jobs in Postgres. The page loads nothing from other hosts, because the server's security
// headers forbid it.
func DashboardHandler(r *redisconn.Redis, rootPath string) http.Handler {
	dashboard := asynqmon.New(asynqmon.Options{RootPath: rootPath, RedisConnOpt: r, ReadOnly: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "The dashboard is read-only.", http.StatusMethodNotAllowed)
			return
		}
		if strings.HasPrefix(r.URL.Path, rootPath+"/api/") {
			w.Header().Set("Content-Type", "application/json") // asynqmon does not set it
			dashboard.ServeHTTP(w, r)
			return
		}
		page := pageWriter{ResponseWriter: w}
		dashboard.ServeHTTP(&page, r)
		page.finish()
	})
}

// pageWriter removes links to other hosts from asynqmon's page. The links load fonts, for which the page has fallbacks. asynqmon also
// serves the page for unknown paths, and sets no content type. So pageWriter looks at the body.
type pageWriter struct {
	http.ResponseWriter
	page bytes.Buffer
}

func (w *pageWriter) Write(p []byte) (int, error) {
	if kind := w.Header().Get("Content-Type"); kind != "" && !strings.HasPrefix(kind, "text/html") {
		return w.ResponseWriter.Write(p)
	}
	return w.page.Write(p)
}

var foreignLink = regexp.MustCompile(`<link [^>]*href="(https?:)?//[^>]*>`)

func (w *pageWriter) finish() {
	if w.page.Len() == 0 {
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.ResponseWriter.Write(foreignLink.ReplaceAll(w.page.Bytes(), nil)) // an error means that the client has gone
}
