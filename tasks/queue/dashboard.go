package queue

import (
	"bytes"
	"net/http"
	"regexp"
	"strings"

	"github.com/hibiken/asynqmon"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

// DashboardHandler serves asynqmon, the queue dashboard, below rootPath (such as
// "/asynqmon"). It shows and changes nothing: its buttons would act on Redis
// alone, where they decide nothing and confuse everybody. Nor does it need any
// other host. That browsers ask none either, and show it in no frame, is up to
// the listener.
func DashboardHandler(r *redisconn.Redis, rootPath string) http.Handler {
	dashboard := asynqmon.New(asynqmon.Options{RootPath: rootPath, RedisConnOpt: r, ReadOnly: true})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "The dashboard is read-only.", http.StatusMethodNotAllowed)
			return
		}
		if strings.HasPrefix(r.URL.Path, rootPath+"/api/") {
			w.Header().Set("Content-Type", "application/json") // asynqmon leaves it to be guessed
			dashboard.ServeHTTP(w, r)
			return
		}
		page := pageWriter{ResponseWriter: w}
		dashboard.ServeHTTP(&page, r)
		page.finish()
	})
}

// pageWriter takes out of asynqmon's page what links to other hosts: fonts, for
// which the page has others of the same kind in reserve. The page is what comes
// without a content type, under any path that is no file's; as a file of its own
// it is there as well.
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
	_, _ = w.ResponseWriter.Write(foreignLink.ReplaceAll(w.page.Bytes(), nil)) // the client is gone
}
