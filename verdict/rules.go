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

const waitAsTold = `Servers send the "Retry-After" header field to indicate how long the user agent ought to wait before making a ` +
	"follow-up request."

// rules are all rules.
var rules = []rule{
	{
		id: "retry-after", title: "The client waits for Retry-After before it polls again.",
		level: Should, check: retryAfter,
		see:      rfc9110 + "10.2.3",
		quote:    waitAsTold,
		exercise: "Read a job that takes a while until it is final",
	},
	{
		id: "list-polling", title: "The client polls a list at most once per second.",
		level: Should, check: listing,
		see:      client,
		quote:    "It should not ask for the same list more often than once a second.",
		exercise: "Read a list of jobs, or a batch, until all are final",
	},
	{
		id: "stop-at-end", title: "The client stops polling when the job has ended.",
		level: Should, check: stopAtEnd,
		see:      client,
		quote:    "It should stop asking once a job is final.",
		standard: demand{Should, judging, "A client should stop polling a job that has ended."},
		exercise: "Read a job until it is final",
	},
	{
		id: "conditional-requests", title: "Polling sends If-None-Match with the latest ETag.",
		level: Should, check: conditional,
		see: rfc9110 + "13.1.2",
		quote: "When a client desires to update one or more stored responses that have entity tags, the client SHOULD " +
			"generate an If-None-Match header field containing a list of those entity tags when making a GET request.",
		exercise: "Read a job that takes a while more than once",
	},
	{
		id: "backoff", title: "The client waits before it retries.",
		level: Must, check: backoff,
		see: client,
		quote: "After no answer, 429 and 5xx it must wait before it sends the same again: as long as Retry-After says, " +
			"otherwise longer each time.",
		standard: demand{Should, rfc9110 + "10.2.3", waitAsTold},
		exercise: "Send requests",
		profiles: []fault.Profile{
			fault.Default, fault.Overloaded, fault.MaintenanceWindow, fault.OddRetryAfter, fault.Credentials, fault.Outage,
		},
	},
	{
		id: "retry-budget", title: "The client gives up after ten tries.",
		level: Should, check: budget,
		see:      client,
		quote:    "It should give a request up after ten tries.",
		standard: demand{Should, rfc9110 + "9.2.2", "A client SHOULD NOT automatically retry a failed automatic retry."},
		exercise: "Submit three jobs with a key or a correlation id", profiles: []fault.Profile{fault.Outage},
	},
	{
		id: "retry-only-retryable", title: "The client retries what may succeed, and does not repeat what was refused.",
		level: Should, check: retried,
		see:      client,
		quote:    "It should repeat a submission that came to nothing, and should not repeat what was refused.",
		standard: demand{Should, rfc9110 + "15.5.4", "The client SHOULD NOT automatically repeat the request with the same credentials."},
		exercise: "Submit jobs with a key or a correlation id, and read them",
		profiles: []fault.Profile{fault.Default, fault.Overloaded, fault.Credentials, fault.Eventual, fault.Outage},
	},
	{
		id: "idempotency-key", title: "A retry carries the Idempotency-Key of the first try.",
		level: Must, check: keyed,
		see:   client,
		quote: "It must repeat a submission with the Idempotency-Key of the first try.",
		standard: demand{Should, rfc9110 + "9.2.2", "A client SHOULD NOT automatically retry a request with a non-idempotent method unless it " +
			"has some means to know that the request semantics are actually idempotent, regardless of the method, or some means to " +
			"detect that the original request was never applied."},
		exercise: "Submit jobs with a key or a correlation id",
		profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Overloaded, fault.StaleConnections, fault.Outage},
	},
	{
		id: "no-duplicates", title: "A retry never creates a second job.",
		level: Must, check: duplicates, // the sentence says SHOULD NOT, but two jobs are a fact
		see: rfc9110 + "9.2.2",
		quote: "A client SHOULD NOT automatically retry a request with a non-idempotent method unless it has some means to know that the " +
			"request semantics are actually idempotent, regardless of the method, or some means to detect that the original request was " +
			"never applied.",
		exercise: "Submit jobs", profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Failover},
	},
	{
		id: "same-body", title: "The same Idempotency-Key comes with the same body.",
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
		quote:    "It must have one Idempotency-Key for one intended job, and another one for another.",
		exercise: "Submit each job with an X-Correlation-ID of its own", profiles: []fault.Profile{fault.Default, fault.FlakyNetwork},
	},
	{
		id: "lost-answer", title: "After losing an answer, the client checks whether the job exists.",
		level: Must, check: foundOut,
		see:      client,
		quote:    "It must find out about a submission whose answer did not come.",
		exercise: "Submit jobs", profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Failover},
	},
	{
		id: "outcome-learned", title: "The client learns how each job ended, within a minute.",
		level: Must, check: outcome,
		see:      client,
		quote:    "It must learn what became of each of its jobs, within a minute of its end.",
		standard: demand{Should, judging, "A client should learn how each of its jobs ended, within a minute of its end."},
		exercise: "Submit a job that ends",
	},
	{
		id: "stream-resume", title: "The client resumes a broken stream with the last event id, after the wait that the stream asked for.",
		level: Must, check: resumed,
		see:   client,
		quote: "It must resume a stream that ended where it ended, and not sooner than the stream's `retry` says.",
		standard: demand{Must, html + "the-eventsource-interface", "If the EventSource object's last event ID string is not the empty string, " +
			"then: [...] Set (`Last-Event-ID`, lastEventIDValue) in request's header list."},
		exercise: "Read an event stream",
		profiles: []fault.Profile{fault.Default, fault.FlakyNetwork, fault.Failover, fault.MaintenanceWindow, fault.StaleConnections},
	},
	{
		id: "half-events", title: "A half-received event is ignored.",
		level: Must, check: halved,
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
		id: "deliveries-answered", title: "The receiver answers each webhook with 2xx in time.",
		level: Must, check: answered,
		see:   client,
		quote: "It must answer a delivery with 2xx within ten seconds.",
		standard: demand{Should, hooks + "delivery-success-and-failure", "A webhook delivery is considered successful if it was responded to " +
			"with a `2xx` status code (status codes 200-299), and it is considered a failure in any other scenario."},
		exercise: "Create a webhook, or submit a job with a callback",
	},
	{
		id: "tampered-refused", title: "The receiver rejects forged and outdated webhooks.",
		level: Must, check: refused,
		see:      client,
		quote:    "It must not answer 2xx to a request whose signatures do not hold, or that is older than five minutes.",
		standard: demand{Must, hooks + "webhook-headers-sending-metadata-to-consumers", validSignature},
		exercise: "Create a webhook, or submit a job with a callback", profiles: []fault.Profile{fault.Default, fault.DuplicateDeliveries},
	},
	{
		id: "repeated-delivery", title: "The receiver answers a repeated webhook with 2xx.",
		level: Must, check: repeated,
		see:   client,
		quote: "It must answer 2xx to a delivery that it knows already.",
		standard: demand{Should, hooks + "verifying-signatures", "Use the `webhook-id` header as an idempotency key to prevent accidentally " +
			"processing the same webhook more than once (e.g. save the IDs in redis for 5 minutes)."},
		exercise: "Create a webhook, or submit a job with a callback", profiles: []fault.Profile{fault.Default, fault.DuplicateDeliveries},
	},
	{
		id: "not-retryable", title: "The client does not retry a job that failed permanently.",
		level: Should, check: unretried,
		see:      client,
		quote:    "It should not try a job again whose failure says that it is not retryable.",
		standard: demand{Should, draft + "3.6", "A boolean indicating whether the client SHOULD retry the job submission with the same input."},
		exercise: "Submit a job whose failure says retryable: false, such as a CUSTOM one, and read its outcome",
	},
	{
		id: "key-renewal", title: "The client renews its API key before the key expires.",
		level: Should, check: renewed,
		see:      client,
		quote:    "It should renew its key before it expires.",
		exercise: "Let the key expire during the session: move the clock of the test bed (--advance)",
	},
	{
		id: "no-key-in-url", title: "No API key appears in a URL.",
		level: Must, check: secret,
		see:   client,
		quote: "It must not send its key in a URL.",
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
		id: "time-outs", title: "The client stops waiting for an answer after 30 seconds.",
		level: Should, check: timeouts,
		see:      client,
		quote:    "It should give up on an answer that has not come after 30 s, unless it asked to wait longer.",
		exercise: "Read a job until it is final", profiles: []fault.Profile{fault.StaleConnections},
	},
	{
		id: "redirects", title: "The client follows a redirect with the same method and body, and notices a circle.",
		level: Should, check: followed,
		see: rfc9110 + "15.4.9",
		quote: "The 308 (Permanent Redirect) status code indicates that the target resource has been assigned a new " +
			"permanent URI and any future references to this resource ought to use one of the enclosed URIs.",
		exercise: "Submit jobs, and read them until they are final", profiles: []fault.Profile{fault.Default, fault.Moved},
	},
	{
		id: "no-key-elsewhere", title: "The client does not send its key to another host.",
		level: Must, check: keyElsewhere,
		see:   client,
		quote: "It must not send its key to another host that a redirect names.",
		standard: demand{Should, rfc9110 + "15.4", "When automatically following a redirected request, the user agent SHOULD resend the " +
			"original request message with the following modifications: [...] Consider removing header fields that were not automatically " +
			"generated by the implementation (i.e., those present in the request because they were added by the calling context) where there are " +
			"security implications; this includes but is not limited to Authorization and Cookie."},
		exercise: "Read a job that takes a while until it is final", profiles: []fault.Profile{fault.Moved},
	},
	{
		id: "content-negotiation", title: "The client sends and accepts media types that the service has.",
		level: Should, check: negotiated,
		see:      client,
		quote:    "It should send and accept media types that the service has.",
		exercise: "Send any request",
	},
	{
		id: "correlation-ids", title: "Each intended job has its own X-Correlation-ID.",
		level: Should, check: correlated,
		see:      client,
		quote:    "It should give each intended job a correlation id of its own.",
		exercise: "Submit a job",
	},
}
