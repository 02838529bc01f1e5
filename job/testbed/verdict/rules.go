package verdict

// Where it is asked for.
const (
	rfc9110 = "https://www.rfc-editor.org/rfc/rfc9110#section-"
	keyRef  = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07#section-2"
	sseRef  = "https://html.spec.whatwg.org/multipage/server-sent-events.html#"
	page    = "https://github.com/forgerun/forgerun/blob/main/docs/reference/"
)

// rules are all rules.
var rules = []rule{
	{
		"retry-after", "Polling waits for as long as Retry-After says.", rfc9110 + "10.2.3",
		"Read a job that takes a while (GET /v1/jobs/{id}) until it is final.", retryAfter,
	},
	{
		"stop-at-end", "Polling stops when the job is final.", page + "api.md#reading",
		"Read a job until it is final.", stopAtEnd,
	},
	{
		"conditional-requests", "Polling sends If-None-Match with the ETag that it has.", rfc9110 + "13.1.2",
		"Read a job that takes a while more than once.", conditional,
	},
	{
		"backoff", "After 429, 502 and 503 the client waits, and not less than told.", rfc9110 + "15.6.4",
		"The profile overloaded or maintenance-window.", backoff,
	},
	{
		"retry-only-retryable", "What may be retried is retried, and what is refused is not sent again.", rfc9110 + "9.2.2",
		"The profile overloaded, with submissions that carry a key or a correlation id.", retried,
	},
	{
		"idempotency-key", "A repeated submission carries the key of the first try.", keyRef + ".2",
		"The profile flaky-network or overloaded.", keyed,
	},
	{
		"same-body", "A key that comes again comes with the same body.", keyRef + ".4",
		"The profile flaky-network or overloaded, with keys.", sameBody,
	},
	{
		"one-job-per-intention", "One intention makes one job, however often it is submitted.", keyRef + ".1",
		"The profile flaky-network, with an X-Correlation-ID for each intended job.", once,
	},
	{
		"lost-answer", "A submission whose answer was lost is found out about.", page + "api.md#repeating-a-request",
		`The profile flaky-network, or the effect {"close": "after_commit"} on submitJob.`, foundOut,
	},
	{
		"outcome-learned", "What became of each job is learned within a minute.", page + "api.md#outcome-documents",
		"Submit a job that ends.", outcome,
	},
	{
		"stream-resume", "A stream that ended is resumed with the last id, after a pause.", sseRef + "the-last-event-id-header",
		"The profile flaky-network or failover, and an event stream.", resumed,
	},
	{
		"tolerant-reader", "Unknown members, states and types do not stop the client.", "https://www.rfc-editor.org/rfc/rfc9457#section-3.2",
		`The effects {"extensions": true}, {"job_status": "PONDERING"} or {"problem_type": "..."} on getJob.`, tolerant,
	},
	{
		"deliveries-answered", "Webhook deliveries are answered with 2xx within ten seconds.", page + "webhooks.md",
		"Create a webhook, or give submissions a callback.", answered,
	},
	{
		"tampered-refused", "A request that is no delivery of the service's, or an old one, is refused.", page + "webhooks.md#verifying",
		`A webhook or callback, and the profile duplicate-deliveries, or the effect {"tamper": "body"} on delivery.`, refused,
	},
	{
		"repeated-delivery", "A delivery that comes again is answered with 2xx.", page + "webhooks.md#order-and-duplicates",
		`A webhook or callback, and the profile duplicate-deliveries, or the effect {"repeat": 1} on delivery.`, repeated,
	},
	{
		"not-retryable", "A job that failed for good is not tried again.", page + "api.md#outcome-documents",
		"A job whose failure says retryable: false, such as a CUSTOM one, and reading its outcome.", unretried,
	},
	{
		"key-renewal", "Keys are renewed before they expire.", page + "api.md#credentials",
		"A session in which the key expires.", renewed,
	},
	{"no-key-in-url", "No key is part of a URL.", "https://www.rfc-editor.org/rfc/rfc6750#section-2.3", "Any request.", secret},
	{
		"connection-reuse", "Connections are used again.", "https://www.rfc-editor.org/rfc/rfc9112#section-9.3",
		"Ten requests, one after the other.", reused,
	},
	{
		"time-outs", "The client does not wait for ever.", page + "testbed.md#sessions-and-the-verdict",
		`The effect {"delay": "40s"}.`, timeouts,
	},
	{"content-negotiation", "What is sent and asked for is what the service has.", rfc9110 + "12", "Any request.", negotiated},
	{
		"correlation-ids", "Each intended job has an X-Correlation-ID of its own.", page + "api.md#submitting",
		"Submit a job.", correlated,
	},
}
