package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

const prefix = "/admin/v1/"

// maxText is the maximum length of text parameters in characters. Correlation ids in the public API have the same limit.
const maxText = 256

// Query parameters.
var (
	clientQuery  = query.ID("client_id", "a client")
	webhookQuery = query.ID("webhook_id", "a webhook")
	kindQuery    = query.Choice("kind", job.AllKinds())
	timeQuery    = []query.Parameter{query.Time("from"), query.Time("to")}
	codeQuery    = func(name string) query.Parameter { return query.Choice(name, codes()) }
	jobQuery     = slices.Concat([]query.Parameter{
		clientQuery, query.ID("batch_id", "a batch"), query.ID("schedule_id", "a schedule"),
		query.Choice("state", job.States), query.Choice("type", job.Types), kindQuery, text("correlation_id"), codeQuery("failure_code"),
	}, timeQuery)
	enabledQuery = query.Choice("enabled", []string{"true", "false"})
	namedQuery   = query.Choice("named", []string{"true", "false"})
	windowQuery  = query.Choice("window", []admin.Window{admin.LastQuarterHour, admin.LastHour, admin.LastDay})
	workerStates = []string{"ALIVE", "DEAD", "STOPPED"}
)

var actions = []string{
	"submit_job", "cancel_job", "retry_job", "delete_job", "enable_webhook", "disable_webhook", "test_webhook", "redeliver",
	"create_client", "name_client", "create_key", "revoke_key", "begin_bulk", "abort_bulk",
	"erase_client", "pause", "resume", "create_schedule", "delete_schedule", "trigger_schedule", "pause_schedule", "resume_schedule",
	"move_clock", "start_session", "end_session",
}

func text(name string) query.Parameter {
	return query.Parameter{Name: name, Valid: isText, Want: "text of 1 to " + strconv.Itoa(maxText) + " characters, without NUL"}
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

func withPage(parameters ...query.Parameter) []query.Parameter {
	return append(parameters, query.Page...)
}

// Routes returns the routes of the API.
func (a *API) Routes() []httpkit.Route {
	routes := slices.Concat(a.readingRoutes(), a.changingRoutes(), a.testbedRoutes())
	for i, rt := range routes {
		if !strings.HasPrefix(rt.Path, prefix+"erasures") { // escaping would change the bytes that an erasure's hash covers
			routes[i].Handle = escaped(rt.Handle)
		}
	}
	return routes
}

func (a *API) readingRoutes() []httpkit.Route {
	s := a.store
	return []httpkit.Route{
		get("jobs", a.listJobs, withPage(jobQuery...)...),
		get("jobs/count", a.countJobs, jobQuery...),
		get("jobs/:id", a.getJob),
		get("jobs/:id/result", a.getResult),
		get("workers", list(s.Workers), withPage(query.Choice("state", workerStates))...),
		get("queues", bounded(s.Queues), clientQuery, kindQuery),
		get("failures", bounded(s.Failures), append([]query.Parameter{clientQuery, kindQuery, codeQuery("code")}, timeQuery...)...),
		get("clients", list(a.clients), withPage(namedQuery)...),
		get("clients/:id", a.getClient),
		get("webhooks", list(s.Webhooks), withPage(clientQuery, enabledQuery)...),
		get("webhooks/:id", one(s.Webhook)),
		get("deliveries", list(s.Deliveries), withPage(append([]query.Parameter{
			clientQuery, webhookQuery, query.ID("job_id", "a job"), query.Choice("state", job.DeliveryStates),
			query.Choice("event_name", job.SubscribableEvents),
		}, timeQuery...)...)...),
		get("deliveries/:id", one(s.Delivery)),
		get("batches", list(s.Batches), withPage(append([]query.Parameter{clientQuery}, timeQuery...)...)...),
		get("batches/:id", one(s.Batch)),
		get("bulk", a.listBulks, withPage()...),
		get("bulk/:id", a.getBulk),
		get("bulk/:id/items", a.listBulkItems, withPage(query.Choice("result", job.BulkResults))...),
		get("schedules", a.listSchedules, withPage(clientQuery)...),
		get("schedules/:id", a.getSchedule),
		get("pauses", a.listPauses),
		get("erasures", a.listErasures, withPage()...),
		get("erasures/:id", a.getErasure),
		get("find", a.find, query.ID("id", "something")),
		get("system", a.getSystem),
		get("overview", a.getOverview, windowQuery),
		get("audit", a.listAudit, withPage(append([]query.Parameter{
			text("operator"), query.Choice("action", actions), text("target_id"),
		}, timeQuery...)...)...),
		get("catalogue", a.getCatalogue),
		get("live", a.stream),
		get("openapi.yaml", func(r *httpkit.Request) error {
			r.Set(fiber.HeaderContentType, "application/yaml")
			return r.Send(Document())
		}),
	}
}

func (a *API) changingRoutes() []httpkit.Route {
	return []httpkit.Route{
		withBody(a, "jobs", "submit_job", "job", bodies.ForClientOf("Submission", "job"), nil, a.submitJob),
		a.post("jobs/:id/cancel", "cancel_job", "job", a.cancelJob),
		withBody(a, "jobs/:id/retry", "retry_job", "job", bodies.Override, retryDetail, a.retryJob),
		a.remove("jobs/:id", "delete_job", "job", a.deleteJob),
		withBody(a, "bulk", "begin_bulk", "bulk", bodies.Bulk, bulkDetail, a.beginBulk),
		a.post("bulk/:id/abort", "abort_bulk", "bulk", a.abortBulk),
		withBody(a, "schedules", "create_schedule", "schedule", bodies.ForClientOf("ScheduleSubmission", "schedule"), nil, a.createSchedule),
		a.remove("schedules/:id", "delete_schedule", "schedule", a.deleteSchedule),
		a.post("schedules/:id/trigger", "trigger_schedule", "schedule", a.triggerSchedule),
		a.post("schedules/:id/pause", "pause_schedule", "schedule", a.pauseSchedule(true)),
		a.post("schedules/:id/resume", "resume_schedule", "schedule", a.pauseSchedule(false)),
		a.post("webhooks/:id/enable", "enable_webhook", "webhook", a.enableWebhook(true)),
		a.post("webhooks/:id/disable", "disable_webhook", "webhook", a.enableWebhook(false)),
		a.post("webhooks/:id/test", "test_webhook", "webhook", a.testWebhook),
		a.post("deliveries/:id/redeliver", "redeliver", "delivery", a.redeliver),
		a.post("clients", "create_client", "client", a.createClient),
		withBody(a, "clients/:id/name", "name_client", "client", bodies.ClientName, nil, a.nameClient),
		withBody(a, "clients/:id/keys", "create_key", "client", decode.CreateKey, nil, a.createKey),
		a.remove("clients/:id/keys/:key_id", "revoke_key", "client", a.revokeKey),
		withBody(a, "clients/:id/erase", "erase_client", "client", bodies.Erasure, erasureDetail, a.eraseClient),
		withBody(a, "pauses", "pause", "pause", bodies.Pause, pauseDetail, a.pause),
		a.remove("pauses/:id", "resume", "pause", a.resume),
	}
}

func get(path string, handle httpkit.Handler, parameters ...query.Parameter) httpkit.Route {
	return httpkit.Route{
		Method: httpkit.Get, Path: prefix + path, Access: httpkit.OperatorToken, Action: path, Success: fiber.StatusOK, Handle: handle,
		Query: parameters,
	}
}

func change(method, path, action string, handle httpkit.Handler) httpkit.Route {
	return httpkit.Route{Method: method, Path: prefix + path, Access: httpkit.OperatorToken, Action: action, Handle: handle}
}

func (a *API) post(path, action, target string, handle httpkit.Handler) httpkit.Route {
	return change(httpkit.Post, path, action, httpkit.Bodyless(a.audited(target, nil, handle)))
}

func (a *API) remove(path, action, target string, do func(*httpkit.Request) error) httpkit.Route {
	return change(httpkit.Delete, path, action, httpkit.Bodyless(a.audited(target, nil, func(r *httpkit.Request) error {
		r.Status(fiber.StatusNoContent)
		return do(r)
	})))
}

// withBody returns a route for a change with a request body. The function `detail` returns the detail of the audit entry; `detail` may be
// nil.
func withBody[T any](a *API, path, action, target string, read func(body []byte) (T, error), detail func(*httpkit.Request, T) any,
	handle func(*httpkit.Request, T) error) httpkit.Route {
	asked := func(r *httpkit.Request) (T, error) { return httpkit.Decoded(r, true, read) }
	var kept func(*httpkit.Request) (any, error)
	if detail != nil {
		kept = func(r *httpkit.Request) (any, error) {
			v, err := asked(r)
			return detail(r, v), err
		}
	}
	do := a.audited(target, kept, func(r *httpkit.Request) error {
		v, err := asked(r)
		if err != nil {
			return err
		}
		return handle(r, v)
	})
	return change(httpkit.Post, path, action, func(r *httpkit.Request) error {
		if _, err := r.JSONBody(true); err != nil {
			return err
		}
		return do(r)
	})
}

// endTimeout limits the time to complete an audit entry. It does not depend on the request's context, which may have ended.
const endTimeout = 5 * time.Second

// audited stores an audit entry, calls the function `do`, and then completes the entry. A panic leaves the entry open.
func (a *API) audited(target string, detail func(*httpkit.Request) (any, error), do httpkit.Handler) httpkit.Handler {
	return func(r *httpkit.Request) error {
		entry := admin.AuditEntry{
			AuditID: job.ID(uuid.Must(uuid.NewV7())), Operator: r.Caller.Operator, Action: r.Route.Action, TargetType: target, RequestID: r.ID,
			Detail: json.RawMessage("{}"),
		}
		if id := r.Params("id"); isText(id) {
			entry.TargetID = &id
		}
		if detail != nil {
			v, err := detail(r)
			if err != nil {
				return err
			}
			if entry.Detail, err = json.Marshal(v); err != nil {
				return err
			}
		}
		if err := a.store.Begin(r.Ctx, entry); err != nil {
			return err
		}
		err := do(r)
		status, made := r.Response().StatusCode(), ""
		if err != nil {
			status = r.StatusOf(err)
		}
		if !r.Made.IsZero() {
			made = r.Made.String()
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Ctx), endTimeout)
		defer cancel()
		if failed := a.store.End(ctx, entry.AuditID, status, made); failed != nil { // the change may have been made, but its entry stays open
			a.deps.Log.ErrorContext(ctx, "cannot complete an audit entry", "action", entry.Action, "request_id", r.ID,
				"error_message", failed.Error())
		}
		return err
	}
}

func escaped(handle httpkit.Handler) httpkit.Handler {
	return func(r *httpkit.Request) error {
		err := handle(r)
		if err == nil && string(r.Response().Header.ContentType()) == fiber.MIMEApplicationJSON {
			var body bytes.Buffer
			json.HTMLEscape(&body, r.Response().Body())
			r.Response().SetBodyRaw(body.Bytes())
		}
		return err
	}
}

func ok[T any](r *httpkit.Request, v T, err error) error {
	return httpkit.Respond(r, fiber.StatusOK, httpkit.As[T])(v, err)
}

func one[T any](read func(context.Context, job.ID) (T, error)) httpkit.Handler {
	return func(r *httpkit.Request) error {
		v, err := read(r.Ctx, r.PathID())
		return ok(r, v, err)
	}
}

// bounded handles a list that has a maximum length instead of pages.
func bounded[T any](read func(context.Context, admin.Range) (admin.Bounded[T], error)) httpkit.Handler {
	return func(r *httpkit.Request) error {
		v, err := read(r.Ctx, narrowed(r))
		return ok(r, v, err)
	}
}

func list[T any](read func(context.Context, admin.Range) (admin.Page[T], error)) httpkit.Handler {
	return func(r *httpkit.Request) error {
		return paged(r, httpkit.As[T], func(after job.ID, _ int) ([]T, job.ID, error) {
			asked := narrowed(r)
			asked.After = after
			page, err := read(r.Ctx, asked)
			return page.Data, page.Next, err
		})
	}
}

func narrowed(r *httpkit.Request) admin.Range {
	return admin.Range{
		ClientID: query.IDOf(r.Query("client_id")), WebhookID: query.IDOf(r.Query("webhook_id")), JobID: query.IDOf(r.Query("job_id")),
		WorkKind: job.Kind(r.Query("kind")), Code: job.Code(r.Query("code")), State: r.Query("state"), EventName: r.Query("event_name"),
		From: query.TimeOf(r.Query("from")), To: query.TimeOf(r.Query("to")), Limit: r.PageSize(query.DefaultLimit),
		Enabled: yesOrNo(r.Query("enabled")), Named: yesOrNo(r.Query("named")),
	}
}

func yesOrNo(text string) *bool {
	if text == "" {
		return nil
	}
	return new(text == "true")
}

// scope returns the scope of a list's cursors: the path and the filters. A cursor of the public API is not valid here, because it is signed
// for a client.
func scope(r *httpkit.Request) string { return r.Path() + "?" + r.Filters() }

func paged[T, V any](r *httpkit.Request, view func(T) V, read func(after job.ID, limit int) ([]T, job.ID, error)) error {
	return httpkit.Paged(r, scope(r), view, read)
}
