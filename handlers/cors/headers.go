package cors

// Methods are those that pages may use. HEAD and GET need no leave.
var Methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// RequestHeaders are those that pages may send: all that the API reads, and
// those of tracing.
var RequestHeaders = []string{
	"Accept", "Accept-Language", "Authorization", "Content-Type", "ForgeRun-Fault", "ForgeRun-Session", "Idempotency-Key", "If-Match",
	"If-None-Match", "If-Range", "Last-Event-ID", "Prefer", "Range", "traceparent", "tracestate", "X-Correlation-ID", "X-Request-Id",
}

// AnswerHeaders are those that pages may read besides the few that the Fetch
// standard lets all read.
var AnswerHeaders = []string{
	"Accept-Encoding", "Accept-Ranges", "Allow", "Content-Digest", "Content-Range", "ETag", "Idempotency-Replayed", "Link", "Location",
	"Preference-Applied",
	"RateLimit", "RateLimit-Policy", "Repr-Digest", "Retry-After", "WWW-Authenticate", "X-Request-Id",
}

// MaxAge is how long a browser need not ask again, in seconds: two hours, the
// most that Chromium keeps.
const MaxAge = 7200
