package operator

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
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
	body           bool                     // whether it has one
	detail         func(*call) (any, error) // nil for none; it is asked before the action begins

	allow string // of none: the methods that there are at the path
}

// prefix is what all paths begin with.
const prefix = "/admin/v1/"

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
		clientQuery, query.ID("batch_id", "a batch"), query.ID("schedule_id", "a schedule"),
		query.Choice("state", job.States), query.Choice("type", job.Types), kindQuery, text("correlation_id"), codeQuery("failure_code"),
	}, timeQuery)
	enabledQuery   = query.Choice("enabled", []string{"true", "false"})
	namedQuery     = query.Choice("named", []string{"true", "false"})
	workerStates   = []string{"ALIVE", "DEAD", "STOPPED"}
	deliveryStates = []job.DeliveryState{job.DeliveryPending, job.DeliveryDelivered, job.DeliveryFailed}
)

// actions are what the audit log can have.
var actions = []string{
	"submit_job", "cancel_job", "retry_job", "delete_job", "enable_webhook", "disable_webhook", "test_webhook", "redeliver",
	"create_client", "name_client", "create_key", "revoke_key", "begin_bulk", "abort_bulk",
	"erase_client", "pause", "resume", "create_schedule", "delete_schedule", "trigger_schedule", "pause_schedule", "resume_schedule",
	"move_clock", "start_session", "end_session",
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

// withBody is a change whose request has a body. detail gives what is kept of it; it is nil for nothing.
func withBody[T any](path, action, target string, read func(body []byte) (T, error), detail func(*call, T) any,
	handle func(*call, T) (answer, error)) route {
	r := post(path, action, target, func(c *call) (answer, error) {
		asked, err := read(c.body)
		if err != nil {
			return answer{}, err
		}
		return handle(c, asked)
	})
	r.body = true
	if detail != nil {
		r.detail = func(c *call) (any, error) {
			asked, err := read(c.body)
			return detail(c, asked), err
		}
	}
	return r
}

func get(path string, handle func(*call) (answer, error), parameters ...query.Parameter) route {
	return route{method: http.MethodGet, path: prefix + path, query: parameters, handle: handle}
}

func post(path, action, target string, handle func(*call) (answer, error)) route {
	return route{method: http.MethodPost, path: prefix + path, handle: handle, action: action, target: target}
}

func remove(path, action, target string, handle func(*call) (answer, error)) route {
	return route{method: http.MethodDelete, path: prefix + path, handle: handle, action: action, target: target}
}

func withPage(parameters ...query.Parameter) []query.Parameter {
	return append(parameters, query.Page...)
}

func (a *API) routes() []route {
	return slices.Concat(a.readingRoutes(), a.changingRoutes(), a.testbedRoutes())
}

func (a *API) readingRoutes() []route {
	r := a.deps.Reader
	return []route{
		get("jobs", a.listJobs, withPage(jobQuery...)...),
		get("jobs/count", a.countJobs, jobQuery...),
		get("jobs/{id}", a.getJob),
		get("workers", list(r.Workers), withPage(query.Choice("state", workerStates))...),
		get("queues", bounded(r.Queues), clientQuery, kindQuery),
		get("failures", bounded(r.Failures), append([]query.Parameter{clientQuery, kindQuery, codeQuery("code")}, timeQuery...)...),
		get("clients", list(a.clients), withPage(namedQuery)...),
		get("clients/{id}", a.getClient),
		get("webhooks", list(r.Webhooks), withPage(clientQuery, enabledQuery)...),
		get("webhooks/{id}", one(r.Webhook)),
		get("deliveries", list(r.Deliveries), withPage(append([]query.Parameter{
			clientQuery, webhookQuery, query.ID("job_id", "a job"), query.Choice("state", deliveryStates),
			query.Choice("event_name", job.SubscribableEvents),
		}, timeQuery...)...)...),
		get("deliveries/{id}", one(r.Delivery)),
		get("batches", list(r.Batches), withPage(append([]query.Parameter{clientQuery}, timeQuery...)...)...),
		get("batches/{id}", one(r.Batch)),
		get("find", a.find, query.ID("id", "something")),
		get("system", a.getSystem),
		get("overview", a.getOverview, windowQuery),
		get("openapi.yaml", func(*call) (answer, error) {
			return answer{status: http.StatusOK, mime: "application/yaml", body: Document()}, nil
		}),
		get("audit", a.listAudit, withPage(append([]query.Parameter{
			text("operator"), query.Choice("action", actions), text("target_id"),
		}, timeQuery...)...)...),
		get("catalogue", a.getCatalogue),
		{
			method: http.MethodGet, path: prefix + "live", stream: a.stream,
			handle: func(*call) (answer, error) { return answer{status: http.StatusOK, mime: "text/event-stream"}, nil },
		},
		get("jobs/{id}/result", a.getResult),
	}
}

// changingRoutes are those of changes, and of the operations that changes begin.
func (a *API) changingRoutes() []route {
	return []route{
		withBody("jobs", "submit_job", "job", bodies.ForClientOf("Submission", "job"), nil, a.submitJob),
		post("jobs/{id}/cancel", "cancel_job", "job", a.cancelJob),
		withBody("jobs/{id}/retry", "retry_job", "job", bodies.Override, retryDetail, a.retryJob),
		remove("jobs/{id}", "delete_job", "job", a.deleteJob),
		get("bulk", a.listBulks, withPage()...),
		get("bulk/{id}", a.getBulk),
		get("bulk/{id}/items", a.listBulkItems, withPage(query.Choice("result", job.BulkResults))...),
		withBody("bulk", "begin_bulk", "bulk", bodies.Bulk, bulkDetail, a.beginBulk),
		post("bulk/{id}/abort", "abort_bulk", "bulk", a.abortBulk),
		get("schedules", a.listSchedules, withPage(clientQuery)...),
		withBody("schedules", "create_schedule", "schedule", bodies.ForClientOf("ScheduleSubmission", "schedule"), nil, a.createSchedule),
		get("schedules/{id}", a.getSchedule),
		remove("schedules/{id}", "delete_schedule", "schedule", a.deleteSchedule),
		post("schedules/{id}/trigger", "trigger_schedule", "schedule", a.triggerSchedule),
		post("schedules/{id}/pause", "pause_schedule", "schedule", a.pauseSchedule(true)),
		post("schedules/{id}/resume", "resume_schedule", "schedule", a.pauseSchedule(false)),
		post("webhooks/{id}/enable", "enable_webhook", "webhook", a.enableWebhook(true)),
		post("webhooks/{id}/disable", "disable_webhook", "webhook", a.enableWebhook(false)),
		post("webhooks/{id}/test", "test_webhook", "webhook", a.testWebhook),
		post("deliveries/{id}/redeliver", "redeliver", "delivery", a.redeliver),
		post("clients", "create_client", "client", a.createClient),
		withBody("clients/{id}/name", "name_client", "client", bodies.ClientName, nil, a.nameClient),
		withBody("clients/{id}/keys", "create_key", "client", decode.CreateKey, nil, a.createKey),
		remove("clients/{id}/keys/{key_id}", "revoke_key", "client", a.revokeKey),
		withBody("clients/{id}/erase", "erase_client", "client", bodies.Erasure, erasureDetail, a.eraseClient),
		get("pauses", a.listPauses),
		withBody("pauses", "pause", "pause", bodies.Pause, pauseDetail, a.pause),
		remove("pauses/{id}", "resume", "pause", a.resume),
		get("erasures", a.listErasures, withPage()...),
		get("erasures/{id}", a.getErasure),
	}
}
