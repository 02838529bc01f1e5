package verdict

import "github.com/forgerun/forgerun/verdict/fault"

// Sources of the demands.
const (
	rfc9110 = "https://www.rfc-editor.org/rfc/rfc9110#section-"
	keyRef  = "https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-07#section-2"
	html    = "https://html.spec.whatwg.org/multipage/server-sent-events.html#"
	hooks   = "https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#"
	draft   = "https://datatracker.ietf.org/doc/html/draft-ratnawat-httpapi-async-problem-details#section-"
	judging = "https://github.com/forgerun/forgerun/blob/main/docs/reference/testbed.md#sessions-and-the-verdict"
	client  = "https://github.com/forgerun/forgerun/blob/main/docs/reference/api.md#what-a-client-does"
)

const retryAfterSentence = `Servers send the "Retry-After" header field to indicate how long the user agent ought to wait before making ` +
	"a follow-up request."

// rules lists all rules in order.
var rules = []rule{
	{
		id: "retry-after", title: "The client waits for Retry-After before it polls again.",
		level: Should, check: retryAfter,
		see:      rfc9110 + "10.2.3",
		quote:    retryAfterSentence,
		exercise: "Read a slow job until it is final",
	},
	{
		id: "list-polling", title: "The client polls a list at most once per second.",
		level: Should, check: listing,
		see:      client,
		quote:    "A client should not ask for the same list more often than once a second.",
		exercise: "Read a list of jobs, or a batch, until all are final",
	},
	{
		id: "stop-at-end", title: "The client stops polling when the job has ended.",
		level: Should, check: stopAtEnd,
		see:      client,
		quote:    "A client should stop polling once a job is final.",
		standard: demand{Should, judging, "A client should stop polling a job that has ended."},
		exercise: "Read a job until it is final",
	},
	{
		id: "conditional-requests", title: "Polling sends If-None-Match with the latest ETag.",
		level: Should, check: conditional,
		see: rfc9110 + "13.1.2",
		quote: "When a client desires to update one or more stored responses that have entity tags, the client SHOULD " +
			"generate an If-None-Match header field containing a list of those entity tags when making a GET request.",
		exercise: "Read a slow job more than once",
	},
	{
		id: "backoff", title: "The client waits before each retry.",
		level: Must, check: backoff,
		see: client,
		quote: "After 429, 5xx or no response, a client must wait before it repeats a request: as long as Retry-After says, otherwise " +
			"longer each time.",
		standard: demand{Should, rfc9110 + "10.2.3", retryAfterSentence},
		exercise: "Send requests",
		profiles: []fault.Profile{
			fault.Default, fault.Overloaded, fault.MaintenanceWindow, fault.OddRetryAfter, fault.Credentials, fault.Outage,
		},
	},
	{
		id: "retry-budget", title: "The client gives up after ten tries.",
		level: Should, check: budget,
		see:      client,
		quote:    "A client should give up on a request after ten tries.",
		standard: demand{Should, rfc9110 + "9.2.2", "A client SHOULD NOT automatically retry a failed automatic retry."},
		exercise: "Submit three jobs with a key or a correlation id", profiles: []fault.Profile{fault.Outage},
	},
	{
		id: "retry-only-retryable", title: "The client retries temporary failures, and does not repeat refused requests.",
		level: Should, check: retried,
		see:      client,
		quote:    "A client should retry a submission that failed temporarily, and should not repeat a refused request.",
		standard: demand{Should, rfc9110 + "15.5.4", "The client SHOULD NOT automatically repeat the request with the same credentials."},
		exercise: "Submit jobs with a key or a correlation id, and read them",
		profiles: []fault.Profile{fault.Default, fault.Overloaded, fault.Credentials, fault.Eventual, fault.Outage},
	},
	{
		id: "idempotency-key", title: "A retry sends the Idempotency-Key of the first try.",
		level: Must, check: keyed,
		see:   client,
		quote: "A client must repeat a submission with the Idempotency-Key of the first try.",
		standard: demand{Should, rfc9110 + "9.2.2", "A client SHOULD NOT automatically retry a request with a non-idempotent method unless it " +
			"has some means to know that the request semantics are actually idempotent, regardless of the method, or some means to " +
			"detect that the original request was never applied."},
		exercise: "Submit jobs with a key or a correlation id",
		profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Overloaded, fault.StaleConnections, fault.Outage},
	},
	{
		id: "no-duplicates", title: "A retry never creates a second job.",
		level: Must, check: duplicates, // the cited sentence says SHOULD NOT, but duplicate jobs are proven harm
		see: rfc9110 + "9.2.2",
		quote: "A client SHOULD NOT automatically retry a request with a non-idempotent method unless it has some means to know that the " +
			"request semantics are actually idempotent, regardless of the method, or some means to detect that the original request was " +
			"never applied.",
		exercise: "Submit jobs", profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Failover},
	},
	{
		id: "same-body", title: "A request that reuses an Idempotency-Key has the same body.",
		level: Must, check: sameBody,
		see: keyRef + ".2",
		quote: "The idempotency key that is supplied as part of every POST request MUST be unique and MUST NOT be reused " +
			"with another request with a different request payload.",
		exercise: "Submit jobs with keys", profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Overloaded},
	},
	{
		id: "one-job-per-intention", title: "The client creates each intended job once.",
		level: Must, check: once,
		see:      client,
		quote:    "A client must use a different Idempotency-Key for each intended job.",
		exercise: "Submit each job with its own X-Correlation-ID", profiles: []fault.Profile{fault.Default, fault.FlakyNetwork},
	},
	{
		id: "lost-answer", title: "After a lost response, the client checks whether the job exists.",
		level: Must, check: lookedUp,
		see:      client,
		quote:    "A client must check whether the job exists if it received no response to a submission.",
		exercise: "Submit jobs", profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Failover},
	},
	{
		id: "outcome-learned", title: "The client learns how each job ended, within a minute.",
		level: Must, check: outcome,
		see:      client,
		quote:    "A client must learn how each of its jobs ended, within a minute of its end.",
		standard: demand{Should, judging, "A client should learn how each of its jobs ended, within a minute of its end."},
		exercise: "Submit a job that ends",
	},
	{
		id: "stream-resume", title: "The client resumes a broken stream with the last event id, after the stream's `retry` time.",
		level: Must, check: resumed,
		see:   client,
		quote: "A client must resume an interrupted stream after the last event, and not sooner than the stream's `retry` says.",
		standard: demand{Must, html + "the-eventsource-interface", "If the EventSource object's last event ID string is not the empty string, " +
			"then: [...] Set (`Last-Event-ID`, lastEventIDValue) in request's header list."},
		exercise: "Read an event stream",
		profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Failover, fault.MaintenanceWindow, fault.StaleConnections},
	},
	{
		id: "half-events", title: "The client ignores incomplete events.",
		level: Must, check: halfEvents,
		see:      html + "event-stream-interpretation",
		quote:    "Once the end of the file is reached, any pending data must be discarded.",
		exercise: "Read an event stream", profiles: []fault.Profile{fault.Failover},
	},
	{
		id: "tolerant-reader", title: "Unknown fields, states and types do not stop the client.",
		level: Must, check: tolerant,
		see: "https://www.rfc-editor.org/rfc/rfc9457#section-3.2",
		quote: "Clients consuming problem details MUST ignore any such extensions that they don't recognize; this allows " +
			"problem types to evolve and include additional information in the future.",
		standard: demand{Should, draft + "4.3", `Clients that encounter an unrecognized status value SHOULD treat it as non-terminal ` +
			`(equivalent to "PROCESSING") unless the value is documented by the API as terminal.`},
		exercise: "Read a job until it is final", profiles: []fault.Profile{fault.Default, fault.NewVersion},
	},
	{
		id: "deliveries-answered", title: "The receiver returns 2xx to each webhook in time.",
		level: Must, check: answered,
		see:   client,
		quote: "A client must return 2xx to a delivery within ten seconds.",
		standard: demand{Should, hooks + "delivery-success-and-failure", "A webhook delivery is considered successful if it was responded to " +
			"with a `2xx` status code (status codes 200-299), and it is considered a failure in any other scenario."},
		exercise: "Create a webhook, or submit a job with a callback",
	},
	{
		id: "tampered-refused", title: "The receiver rejects forged and outdated webhooks.",
		level: Must, check: refused,
		see:      client,
		quote:    "A client must not return 2xx to a request that has no valid signature, or that is older than five minutes.",
		standard: demand{Must, hooks + "webhook-headers-sending-metadata-to-consumers", validSignature},
		exercise: "Create a webhook, or submit a job with a callback", profiles: []fault.Profile{fault.Default, fault.DuplicateDeliveries},
	},
	{
		id: "repeated-delivery", title: "The receiver returns 2xx to a repeated webhook.",
		level: Must, check: repeated,
		see:   client,
		quote: "A client must return 2xx to a delivery that it has already received.",
		standard: demand{Should, hooks + "verifying-signatures", "Use the `webhook-id` header as an idempotency key to prevent accidentally " +
			"processing the same webhook more than once (e.g. save the IDs in redis for 5 minutes)."},
		exercise: "Create a webhook, or submit a job with a callback", profiles: []fault.Profile{fault.Default, fault.DuplicateDeliveries},
	},
	{
		id: "not-retryable", title: "The client does not retry a job that failed permanently.",
		level: Should, check: unretried,
		see:      client,
		quote:    "A client should not retry a job if its failure says that it is not retryable.",
		standard: demand{Should, draft + "3.6", "A boolean indicating whether the client SHOULD retry the job submission with the same input."},
		exercise: "Submit a job that fails with retryable: false, such as a CUSTOM job, and read its outcome",
	},
	{
		id: "key-renewal", title: "The client renews its API key before the key expires.",
		level: Should, check: renewed,
		see:      client,
		quote:    "A client should renew its key before it expires.",
		exercise: "Let the key expire during the session: move the clock of the test bed (--advance)",
	},
	{
		id: "no-key-in-url", title: "No API key appears in a URL.",
		level: Must, check: secret,
		see:   client,
		quote: "A client must not send its key in a URL.",
		standard: demand{Should, "https://www.rfc-editor.org/rfc/rfc6750#section-5.3",
			"Bearer tokens SHOULD NOT be passed in page URLs (for example, as query string parameters)."},
		exercise: "Send any request",
	},
	{
		id: "connection-reuse", title: "The client reuses connections.",
		level: Should, check: reused,
		see:      "https://www.rfc-editor.org/rfc/rfc9112#section-9.3",
		quote:    "HTTP implementations SHOULD support persistent connections.",
		exercise: "Send ten requests, one after the other",
	},
	{
		id: "time-outs", title: "The client stops waiting for a response after 30 seconds.",
		level: Should, check: timeouts,
		see:      client,
		quote:    "A client should stop waiting for a response after 30 s, unless it asked to wait longer.",
		exercise: "Read a job until it is final", profiles: []fault.Profile{fault.StaleConnections},
	},
	{
		id: "redirects", title: "The client follows a redirect with the same method and body, and detects loops.",
		level: Should, check: followed,
		see: rfc9110 + "15.4.9",
		quote: "The 308 (Permanent Redirect) status code indicates that the target resource has been assigned a new " +
			"permanent URI and any future references to this resource ought to use one of the enclosed URIs.",
		exercise: "Submit jobs, and read them until they are final", profiles: []fault.Profile{fault.Default, fault.Moved},
	},
	{
		id: "no-key-elsewhere", title: "The client does not send its key to another host.",
		level: Must, check: keySentElsewhere,
		see:   client,
		quote: "A client must not send its key to another host when it follows a redirect.",
		standard: demand{Should, rfc9110 + "15.4", "When automatically following a redirected request, the user agent SHOULD resend the " +
			"original request message with the following modifications: [...] Consider removing header fields that were not automatically " +
			"generated by the implementation (i.e., those present in the request because they were added by the calling context) where there are " +
			"security implications; this includes but is not limited to Authorization and Cookie."},
		exercise: "Read a slow job until it is final", profiles: []fault.Profile{fault.Moved},
	},
	{
		id: "content-negotiation", title: "The client sends and accepts media types that the service supports.",
		level: Should, check: negotiated,
		see:      client,
		quote:    "A client should send and accept media types that the service supports.",
		exercise: "Send any request",
	},
	{
		id: "correlation-ids", title: "Each intended job has its own X-Correlation-ID.",
		level: Should, check: correlated,
		see:      client,
		quote:    "A client should give each intended job its own correlation id.",
		exercise: "Submit a job",
	},
}
