package operator

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// route is one operation.
type route struct {
	method, path string
	query        []query.Parameter
	handle       func(*call) (answer, error)

	// stream answers GET instead of handle, which answers HEAD.
	stream func(http.ResponseWriter, *call) error

	// Of a change: what is kept of it.
	action, target string
	body           bool                                 // whether it has one
	detail         func(*call) (json.RawMessage, error) // nil for none
}

// maxText is the length of correlation ids, as in the public API, in characters.
const maxText = 256

// The query parameters.
var (
	clientQuery  = query.ID("client_id", "a client")
	webhookQuery = query.ID("webhook_id", "a webhook")
	kindQuery    = query.Choice("kind", job.AllKinds())
	timeQuery    = []query.Parameter{query.Time("from"), query.Time("to")}
	codeQuery    = func(name string) query.Parameter { return query.Choice(name, codes()) }
	jobQuery     = slices.Concat([]query.Parameter{
		clientQuery, query.ID("batch_id", "a batch"), query.Choice("state", job.States), query.Choice("type", job.Types), kindQuery,
		text("correlation_id"), codeQuery("failure_code"),
	}, timeQuery)
	enabledQuery = query.Parameter{
		Name: "enabled", Want: "true or false", Values: []string{"true", "false"},
		Valid: func(s string) bool { return s == "true" || s == "false" },
	}
	workerStates   = []string{"ALIVE", "DEAD", "STOPPED"}
	deliveryStates = []job.DeliveryState{job.DeliveryPending, job.DeliveryDelivered, job.DeliveryFailed}
)

// actions are what the audit log can have.
var actions = []string{
	"submit_job", "cancel_job", "retry_job", "delete_job", "enable_webhook", "disable_webhook", "test_webhook", "redeliver",
	"create_client", "create_key", "revoke_key", "begin_bulk", "abort_bulk",
	"erase_client", "pause", "resume", "pause_schedule", "resume_schedule",
}

// text is a parameter that is any text.
func text(name string) query.Parameter {
	return query.Parameter{Name: name, Valid: isText, Want: "a text of 1 to " + strconv.Itoa(maxText) + " characters, without NUL"}
}

func isText(s string) bool {
	return s != "" && utf8.RuneCountInString(s) <= maxText && utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

func codes() []job.Code {
	all := make([]job.Code, len(job.Codes))
	for i, c := range job.Codes {
		all[i] = c.Code
	}
	return all
}

// withBody is a change whose request has a body. detail is what is kept of it, nil for nothing.
func withBody(r route, detail func(*call) (json.RawMessage, error)) route {
	r.body, r.detail = true, detail
	return r
}

func get(path string, handle func(*call) (answer, error), parameters ...query.Parameter) route {
	return route{method: http.MethodGet, path: "/admin/v1/" + path, query: parameters, handle: handle}
}

func change(method, path, action, target string, handle func(*call) (answer, error)) route {
	return route{method: method, path: "/admin/v1/" + path, handle: handle, action: action, target: target}
}

func paged(parameters ...query.Parameter) []query.Parameter { return append(parameters, query.Page...) }

func (a *API) routes() []route { return append(a.readingRoutes(), a.changingRoutes()...) }

func (a *API) readingRoutes() []route {
	r := a.deps.Reader
	return []route{
		get("jobs", a.listJobs, paged(jobQuery...)...),
		get("jobs/count", a.countJobs, jobQuery...),
		get("jobs/{id}", a.getJob),
		get("workers", list(r.Workers), paged(query.Choice("state", workerStates))...),
		get("queues", bounded(r.Queues), clientQuery, kindQuery),
		get("failures", bounded(r.Failures), append([]query.Parameter{clientQuery, kindQuery, codeQuery("code")}, timeQuery...)...),
		get("clients", list(a.clients), paged()...),
		get("clients/{id}", a.getClient),
		get("webhooks", list(r.Webhooks), paged(clientQuery, enabledQuery)...),
		get("webhooks/{id}", one(r.Webhook, job.CodeWebhookNotFound, "webhook")),
		get("deliveries", list(r.Deliveries), paged(append([]query.Parameter{
			clientQuery, webhookQuery, query.ID("job_id", "a job"), query.Choice("state", deliveryStates),
			query.Choice("event_name", job.SubscribableEvents),
		}, timeQuery...)...)...),
		get("deliveries/{id}", one(r.Delivery, job.CodeRequestNotFound, "delivery")),
		get("batches", list(r.Batches), paged(append([]query.Parameter{clientQuery}, timeQuery...)...)...),
		get("batches/{id}", one(r.Batch, job.CodeBatchNotFound, "batch")),
		get("system", a.getSystem),
		get("overview", a.getOverview, windowQuery),
		get("openapi.yaml", func(*call) (answer, error) {
			return answer{status: http.StatusOK, mime: "application/yaml", body: document}, nil
		}),
		get("audit", a.listAudit, paged(append([]query.Parameter{
			text("operator"), query.Choice("action", actions), text("target_id"),
		}, timeQuery...)...)...),
		get("catalogue", a.getCatalogue),
		{
			method: http.MethodGet, path: "/admin/v1/live", stream: a.stream,
			handle: func(*call) (answer, error) { return answer{status: http.StatusOK, mime: "text/event-stream"}, nil },
		},
		get("jobs/{id}/result", a.getResult),
	}
}

// changingRoutes are those of changes, and of the operations that changes begin.
func (a *API) changingRoutes() []route {
	return []route{
		withBody(change(http.MethodPost, "jobs", "submit_job", "job", a.submitJob), nil),
		change(http.MethodPost, "jobs/{id}/cancel", "cancel_job", "job", a.cancelJob),
		withBody(change(http.MethodPost, "jobs/{id}/retry", "retry_job", "job", a.retryJob), retryDetail),
		change(http.MethodDelete, "jobs/{id}", "delete_job", "job", a.deleteJob),
		get("bulk", a.listBulks, paged()...),
		get("bulk/{id}", ofBulk(a.deps.Bulk.Bulk)),
		get("bulk/{id}/items", a.listBulkItems, paged(query.Choice("result", job.BulkResults))...),
		withBody(change(http.MethodPost, "bulk", "begin_bulk", "bulk", a.beginBulk), bulkDetail),
		change(http.MethodPost, "bulk/{id}/abort", "abort_bulk", "bulk", ofBulk(a.deps.Bulk.Abort)),
		get("schedules", a.listSchedules, paged(clientQuery)...),
		get("schedules/{id}", ofSchedule(a.getSchedule)),
		change(http.MethodPost, "schedules/{id}/pause", "pause_schedule", "schedule", ofSchedule(a.pauseSchedule(true))),
		change(http.MethodPost, "schedules/{id}/resume", "resume_schedule", "schedule", ofSchedule(a.pauseSchedule(false))),
		change(http.MethodPost, "webhooks/{id}/enable", "enable_webhook", "webhook", a.enableWebhook(true)),
		change(http.MethodPost, "webhooks/{id}/disable", "disable_webhook", "webhook", a.enableWebhook(false)),
		change(http.MethodPost, "webhooks/{id}/test", "test_webhook", "webhook", a.testWebhook),
		change(http.MethodPost, "deliveries/{id}/redeliver", "redeliver", "delivery", a.redeliver),
		change(http.MethodPost, "clients", "create_client", "client", a.createClient),
		withBody(change(http.MethodPost, "clients/{id}/keys", "create_key", "client", a.createKey), nil),
		change(http.MethodDelete, "clients/{id}/keys/{key_id}", "revoke_key", "client", a.revokeKey),
		withBody(change(http.MethodPost, "clients/{id}/erase", "erase_client", "client", a.eraseClient), erasureDetail),
		get("pauses", a.listPauses),
		withBody(change(http.MethodPost, "pauses", "pause", "pause", a.pause), pauseDetail),
		change(http.MethodDelete, "pauses/{id}", "resume", "pause", a.resume),
		get("erasures", a.listErasures, paged()...),
		get("erasures/{id}", a.getErasure),
	}
}

// checkQuery refuses a query that the route does not have.
func (c *call) checkQuery() error {
	if c.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return job.Malformed("The query is not percent-encoded as it should be.")
	}
	return query.Check(c.route.query, pairs(values))
}

func pairs(values map[string][]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, all := range values {
			for _, value := range all {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}

// param gives a query parameter, which has been checked; "" if it is not there.
func (c *call) param(name string) string { return c.URL.Query().Get(name) }

func (c *call) idParam(name string) job.ID {
	id, _ := job.ParseID(c.param(name)) // checked; zero if there is none
	return id
}

func (c *call) timeParam(name string) *time.Time {
	at, err := job.ParseTime(c.param(name))
	if err != nil {
		return nil
	}
	return &at
}

// pathID gives the id in the path. One that is malformed is not found, as one that is not known.
func (c *call) pathID(code job.Code, what string) (job.ID, error) {
	id, err := job.ParseID(c.PathValue("id"))
	if err != nil || id.IsZero() {
		return job.ID{}, job.Errorf(code, "No %s with this id was found.", what)
	}
	return id, nil
}

// one answers with what the path names.
func one[T any](read func(context.Context, job.ID) (T, error), code job.Code, what string) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		id, err := c.pathID(code, what)
		if err != nil {
			return answer{}, err
		}
		found, err := read(c.Context(), id)
		if err != nil {
			return answer{}, err
		}
		return asJSON(http.StatusOK, found)
	}
}

// bounded answers with a list that has no cursor.
func bounded[T any](read func(context.Context, admin.Range) (admin.Bounded[T], error)) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		all, err := read(c.Context(), c.narrowed())
		if err != nil {
			return answer{}, err
		}
		return asJSON(http.StatusOK, all)
	}
}

// list answers with a page of a list that is sorted by ids.
func list[T any](read func(context.Context, admin.Range) (admin.Page[T], error)) func(*call) (answer, error) {
	return func(c *call) (answer, error) {
		r := c.narrowed()
		position, err := c.openCursor(len(job.ID{}))
		if err != nil {
			return answer{}, err
		}
		copy(r.After[:], position)
		page, err := read(c.Context(), r)
		if err != nil {
			return answer{}, err
		}
		return c.page(page.Data, r.Limit, page.Next.IsZero(), page.Next[:])
	}
}

// narrowed gives what the query narrows a list down to.
func (c *call) narrowed() admin.Range {
	r := admin.Range{
		ClientID: c.idParam("client_id"), WebhookID: c.idParam("webhook_id"), JobID: c.idParam("job_id"),
		WorkKind: job.Kind(c.param("kind")), Code: job.Code(c.param("code")), State: c.param("state"), EventName: c.param("event_name"),
		From: c.timeParam("from"), To: c.timeParam("to"), Limit: query.Limit(c.param("limit"), query.DefaultLimit),
	}
	if enabled := c.param("enabled"); enabled != "" {
		yes := enabled == "true"
		r.Enabled = &yes
	}
	return r
}

// scope names the list and its filters, for its cursors. They belong to no client: no cursor of the public API is one here.
func (c *call) scope() string { return c.URL.Path + "?" + query.Scope(c.route.query, c.param) }

// openCursor gives the position in the cursor of the query, nil if it has none.
func (c *call) openCursor(size int) ([]byte, error) {
	cursor := c.param("cursor")
	if cursor == "" {
		return nil, nil
	}
	key, err := c.api.deps.CursorKey(c.Context())
	if err != nil {
		return nil, err
	}
	return query.Open(key, job.ID{}, c.scope(), cursor, size)
}

type pageView struct {
	Data any      `json:"data"`
	Page infoView `json:"page"`
}

type infoView struct {
	Limit      int     `json:"limit"`
	NextCursor *string `json:"next_cursor"` // null at the end
}

// page answers with a page of a list, and with the cursor of the next one.
func (c *call) page(data any, limit int, end bool, next []byte) (answer, error) {
	view, err := c.pageView(data, limit, end, next)
	if err != nil {
		return answer{}, err
	}
	return asJSON(http.StatusOK, view)
}

func (c *call) pageView(data any, limit int, end bool, next []byte) (pageView, error) {
	view := pageView{data, infoView{Limit: limit}}
	if !end {
		key, err := c.api.deps.CursorKey(c.Context())
		if err != nil {
			return view, err
		}
		cursor := query.Seal(key, job.ID{}, c.scope(), next)
		view.Page.NextCursor = &cursor
	}
	return view, nil
}
