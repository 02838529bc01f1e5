package operator

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// overviews answers with an overview of the window that was asked for.
type overviews struct{ err error }

func (o overviews) Overview(_ context.Context, w admin.Window) (*admin.Overview, error) {
	_, step := w.Span()
	return &admin.Overview{
		AsOf: job.Time(time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)), States: map[job.State]int{job.Queued: 1},
		History: admin.History{StepSeconds: int(step.Seconds()), Buckets: []admin.HistoryBucket{}}, Attention: []admin.Attention{},
	}, o.err
}

func TestGetOverview(t *testing.T) {
	t.Parallel()
	get := func(o overviews, query string) *httptest.ResponseRecorder {
		api := New(Config{Timeout: time.Minute}, Deps{
			Reader: struct{ Reader }{}, Bulk: struct{ BulkOperations }{}, Overview: o, Log: slog.New(slog.DiscardHandler),
		})
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/v1/overview"+query, http.NoBody)
		api.Handler(operators.Guard{}).ServeHTTP(w, r)
		return w
	}
	for query, step := range map[string]string{"": "10", "?window=15m": "10", "?window=1h": "60", "?window=24h": "300"} {
		w := get(overviews{}, query)
		require.Equal(t, http.StatusOK, w.Code)
		require.JSONEq(t, `{"as_of": "2026-11-24T12:00:00.000000Z", "states": {"QUEUED": 1}, "waiting": {"count": 0, "more": false,
			"oldest_run_at": null}, "workers": {"alive": 0, "slots": 0, "held": 0}, "history": {"step_seconds": `+step+`, "buckets": []},
			"attention": []}`, w.Body.String())
	}
	for _, query := range []string{"?window=2h", "?window=", "?window=1h&window=1h", "?since=1h"} {
		require.Equal(t, http.StatusBadRequest, get(overviews{}, query).Code, query)
	}
	require.Equal(t, http.StatusServiceUnavailable, get(overviews{job.Errorf(job.CodeStorageUnavailable, "It is away.")}, "").Code)
}
