package operator_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/overview"
	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

const (
	changeToken = backend.AdminToken
	readToken   = backend.ReadToken
)

var anID = backend.Job

type world struct {
	t *testing.T
	*backend.Service
	api     *operator.API
	checked *apitest.Document
}

func newWorld(t *testing.T, change ...func(*operator.Config, *operator.Deps)) *world {
	t.Helper()
	return newWorldOn(t, backend.New(t), change...)
}

func newWorldOn(t *testing.T, s *backend.Service, change ...func(*operator.Config, *operator.Deps)) *world {
	t.Helper()
	s.Seed()
	mask, err := operator.ParseMask("*password*,*Secret*")
	require.NoError(t, err)
	cfg := operator.Config{
		PublicURL: "http://x.test", Version: "v1", Timeout: time.Minute, Mask: mask, MaxPayload: 1000,
		Limits: operator.Limits{ClientActive: 5}, Catalogue: backend.Catalogue,
	}
	deps := operator.Deps{
		Store: s.Store.Admin(), Progress: s.Queue.Progress, Jobs: s.Jobs, Webhooks: s.Webhooks, Clients: s.Clients,
		Overview: overview.Service{Store: s.Store}.Overview, Bulk: s.Bulk, Schedules: s.Schedules, Testbed: s.Operators,
		Erasures: s.Erasures, Pauses: s.Pauses,
		CursorKey: func(context.Context) ([]byte, error) { return []byte("key"), nil }, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg, &deps)
	}
	deps.Guard = operators.Guard{
		Tokens: backend.Tokens(t), Attempts: authlimit.New(time.Now, telemetry.In(nil)), Log: deps.Log,
		Source: func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.1") },
	}
	return &world{t, s, operator.New(cfg, deps), apitest.New(t, operator.Document())}
}

func (w *world) audit() []admin.AuditEntry {
	w.t.Helper()
	page, err := w.Store.Admin().Audit(w.t.Context(), admin.AuditQuery{Limit: 100})
	require.NoError(w.t, err)
	return page.Data
}

type reply struct {
	*http.Response
	text string
}

func (r reply) json(t *testing.T, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.text), into), r.text)
}

func (r reply) requireStatus(t *testing.T, status int) reply {
	t.Helper()
	require.Equal(t, status, r.StatusCode, r.text)
	return r
}

func (r reply) cursor(t *testing.T) string {
	t.Helper()
	var p struct {
		Page struct {
			NextCursor string `json:"next_cursor"`
		}
	}
	r.json(t, &p)
	require.NotEmpty(t, p.Page.NextCursor)
	return p.Page.NextCursor
}

var nowhere = []string{
	"/admin/v1", "/admin/v1/", "/admin/v1//jobs", "/admin/v1/./jobs", "/admin/v1/jobs/", "/admin/v1/jobs/../jobs", "/admin/v1/nothing",
	"/admin/v1/nothing/..", "/admin/v1/nothing//jobs", "/admin/v1/nothing/./jobs", "/admin/v1/nothing/../jobs",
}

func (w *world) send(token, method, target, body string, headers ...string) reply {
	w.t.Helper()
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := w.api.Test(r)
	require.NoError(w.t, err)
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	require.NoError(w.t, err)
	if !slices.Contains(nowhere, target) {
		w.checked.Check(w.t, r, res, answer)
	}
	return reply{res, string(answer)}
}

func (w *world) get(target string) reply { return w.send(readToken, "GET", target, "") }

func (w *world) post(target, body string, headers ...string) reply {
	return w.send(changeToken, "POST", target, body, headers...)
}
