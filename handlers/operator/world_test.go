package operator_test

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/handlers/webhooks"
	"github.com/forgerun/forgerun/internal/authlimit"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

const (
	changeToken = "a-token-that-may-change"
	readToken   = "a-token-that-may-read"
)

// world is an API with a store that the test fills.
type world struct {
	t       *testing.T
	api     *operator.API
	store   *store
	checked *apitest.Document
}

func newWorld(t *testing.T, change ...func(*operator.Config, *operator.Deps)) *world {
	tokens, err := operators.Parse("ann:"+changeToken, readToken)
	require.NoError(t, err)
	s := &store{}
	mask, err := operator.ParseMask("*password*,*Secret*")
	require.NoError(t, err)
	cfg := operator.Config{
		PublicURL: "http://x.test", Version: "v1", Timeout: time.Minute, Mask: mask, MaxPayload: 1000,
		Limits:    operator.Limits{ClientActive: 5},
		Catalogue: job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: time.Minute},
	}
	deps := operator.Deps{
		Store: s, Progress: s.Progress, Jobs: s, Webhooks: hooks{s: s}, Deliveries: deliveries{s: s}, Clients: clients{s},
		Overview: s.Overview, Bulk: bulks{s}, Schedules: schedules{s}, Testbed: testbeds{s},
		Erasures: erasures{s}, Pauses: pauses{s},
		CursorKey: func(context.Context) ([]byte, error) { return []byte("key"), nil }, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg, &deps)
	}
	deps.Guard = operators.Guard{
		Tokens: tokens, Attempts: authlimit.New(nil, telemetry.In(nil)), Log: deps.Log,
		Source: func(*http.Request) netip.Addr { return netip.MustParseAddr("192.0.2.1") },
	}
	return &world{t, operator.New(cfg, deps), s, apitest.New(t, operator.Document())}
}

type reply struct {
	*http.Response
	text string
}

// json reads the body into a value.
func (r reply) json(t *testing.T, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(r.text), into), r.text)
}

// cursor gives that of the next page.
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

// nowhere are paths below the API's that the document does not have.
var nowhere = []string{
	"/admin/v1", "/admin/v1/", "/admin/v1//jobs", "/admin/v1/./jobs", "/admin/v1/jobs/", "/admin/v1/jobs/../jobs", "/admin/v1/nothing",
	"/admin/v1/nothing/..", "/admin/v1/nothing//jobs", "/admin/v1/nothing/./jobs", "/admin/v1/nothing/../jobs",
}

// send asks, as who has the token, and holds the answer against the API's document.
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

// post is a change of somebody who may.
func (w *world) post(target, body string, headers ...string) reply {
	return w.send(changeToken, "POST", target, body, headers...)
}

var left = []job.BulkReason{{Result: job.ItemFailed, Code: new(job.CodeConflict), Detail: "It cannot.", Count: 3}}

func (s *store) BulkLeft(context.Context, job.ID) ([]job.BulkReason, error) {
	return left, s.err
}

func (s *store) Find(_ context.Context, id job.ID) ([]admin.Found, error) {
	return []admin.Found{{Type: "jobs", ID: id, ClientID: &anID}}, s.err
}

// hooks and deliveries are the use cases of which operators need some.
type (
	webhookCases  = webhooks.Webhooks
	deliveryCases = webhooks.Deliveries
	hooks         struct {
		webhookCases
		s *store
	}
	deliveries struct {
		deliveryCases
		s *store
	}
)

func (h hooks) Update(_ context.Context, _, _ job.ID, p job.WebhookPatch) (*job.Webhook, error) {
	return nil, h.s.did(map[bool]string{true: "enable", false: "disable"}[*p.Enabled])
}

func (d deliveries) Test(context.Context, job.ID, job.ID) (*job.Delivery, error) {
	return &job.Delivery{ID: anID}, d.s.did("test")
}

func (d deliveries) Redeliver(context.Context, job.ID, job.DeliveryOwner, job.ID) (*job.Delivery, error) {
	return &job.Delivery{ID: anID}, d.s.did("redeliver")
}

// pauses and erasures are use cases, some of whose names are those of others.
type (
	pauses   struct{ *store }
	erasures struct{ *store }
)

func (p pauses) Pause(_ context.Context, asked job.Pause) (job.Pause, bool, error) {
	added := !slices.ContainsFunc(p.paused, func(one job.Pause) bool { return one.Scope == asked.Scope && one.Target == asked.Target })
	p.paused = append(p.paused, asked)
	asked.ID, asked.CreatedAt = anID, nowAt
	return asked, added, p.did("pause by " + asked.Operator)
}

func (p pauses) Resume(_ context.Context, id job.ID) error {
	return cmp.Or(missing(id), p.did("resume "+id.String()))
}

func (p pauses) Pauses(context.Context) (job.Pauses, error) {
	return job.Pauses{
		{ID: anID, Scope: job.PauseAll, Mode: job.ModePause, Operator: "ann", Reason: "a release", CreatedAt: nowAt},
		{ID: anID, Scope: job.PauseKind, Target: "SUCCESS_FAST", Mode: job.ModeDrain, Operator: "ann", Reason: "r", CreatedAt: nowAt},
	}, p.err
}

func anErasure(done bool) *job.Erasure {
	e := &job.Erasure{
		ID: anID, ClientID: anID, Operator: "ann", Reason: "<a> & \"ü\"", RequestID: "r", CreatedAt: nowAt, StartedAt: &nowAt, Step: "jobs",
		Removed: map[string]int{"jobs": 3}, Remaining: map[string]int{},
	}
	if done {
		_ = e.Finish(nowAt)
	}
	return e
}

func (e erasures) Begin(_ context.Context, r job.ErasureRequest) (*job.Erasure, error) {
	if err := missing(r.ClientID); err != nil {
		return nil, err
	}
	e.erasure = r
	return anErasure(false), e.did("erase by " + r.Operator)
}

func (e erasures) Erasure(_ context.Context, id job.ID) (*job.Erasure, error) {
	return anErasure(true), e.find(id)
}

func (e erasures) Erasures(_ context.Context, after job.ID, limit int) ([]*job.Erasure, job.ID, error) {
	e.erasuresAfter, e.erasuresLimit = after, limit
	return []*job.Erasure{anErasure(false), anErasure(true)}, e.nextID(), e.err
}
