// Package fault describes faults in a client's traffic: rules, the requests that they match, and their effects. The faults imitate what
// happens in production. The package is independent of any API.
package fault

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// Limits of a client's rules.
const (
	MaxRules     = 100
	MaxRuleBytes = 4 << 10
	MaxDelay     = time.Minute
	MaxRetry     = 3600 // seconds in Retry-After
	MaxEvents    = 1000 // maximum of Effect.RepeatAfter
	MaxTimes     = 1000 // maximum of Match.Times
	MaxFor       = 10 * time.Minute
	MaxRefuse    = 10 * time.Second
)

// Rule is a fault and the requests that it matches. If several rules apply to a request, the first one takes effect.
type Rule struct {
	Match  Match  `json:"match"`
	Effect Effect `json:"effect"`
}

// Match selects requests. An empty Match selects all requests of the client, but no deliveries. Only one of Nth, Every and Probability
// may be set. Nth and Every count only requests that match the other members, starting at 1.
type Match struct {
	Operation   string   `json:"operation,omitempty"` // name of an operation in the API, or Delivery; empty: all requests of the client
	Nth         int      `json:"nth,omitempty"`       // the nth request; with Times or For, also requests after it
	Times       int      `json:"times,omitempty"`     // how many requests from the nth on are disturbed; default 1
	For         Duration `json:"for,omitempty"`       // how long after the first disturbed request further requests are disturbed
	Every       int      `json:"every,omitempty"`     // 3: every third request
	Probability float64  `json:"probability,omitempty"`
	Same        bool     `json:"same,omitempty"`  // after the first disturbed request, only its repetitions match (see Subject)
	From        *Time    `json:"from,omitempty"`  // inclusive
	Until       *Time    `json:"until,omitempty"` // exclusive
}

// Effect is a fault. Blank lines separate groups of members. Members of different groups may be combined.
type Effect struct {
	// A response that replaces the response of the service: an error document of the API, a proxy's error page, or a redirect.
	Status    int    `json:"status,omitempty"`
	Code      string `json:"code,omitempty"`
	HTML      bool   `json:"html,omitempty"`
	Moved     int    `json:"moved,omitempty"`         // 303, 307 or 308 to the same address
	OtherHost bool   `json:"to_other_host,omitempty"` // with Moved: redirect to another host name of this machine, which is another origin

	// Retry-After of any response.
	RetryAfter   *int       `json:"retry_after,omitempty"` // s
	RetryAfterAs RetryAfter `json:"retry_after_as,omitempty"`

	// Timing and connection.
	Delay       Duration `json:"delay,omitempty"` // delay before the request is processed
	Close       Close    `json:"close,omitempty"`
	NextRequest Close    `json:"next_request,omitempty"` // what happens to the next request on this connection; values in NextCloses
	Reset       bool     `json:"reset,omitempty"`        // end the connection with a TCP reset; another member must end the connection
	Refuse      Duration `json:"refuse,omitempty"`       // how long new connections of all clients are refused, from the start of the response
	TLS         TLS      `json:"tls,omitempty"`          // closes this connection; the next connection of any client has this TLS fault
	SlowBytes   int      `json:"slow_bytes,omitempty"`   // speed of the response in bytes per second
	ContentType string   `json:"content_type,omitempty"`

	// Event streams. Numbers of events are per connection.
	CutAfter       *int `json:"cut_after,omitempty"`
	HalfEventAfter *int `json:"half_event_after,omitempty"`
	StallAfter     *int `json:"stall_after,omitempty"`
	RepeatAfter    int  `json:"repeat_after_resume,omitempty"` // number of events to repeat after the client resumed a stream
	CommentsOnly   bool `json:"comments_only,omitempty"`
	ExtraEvents    bool `json:"extra_events,omitempty"` // after each event, add one of an unknown type, with a NUL in its id
	StreamRetry    int  `json:"stream_retry,omitempty"` // retry field at the beginning of the stream, in ms

	// Deliveries.
	Drop          bool   `json:"drop,omitempty"`           // withhold the delivery and try again after Delay
	Repeat        int    `json:"repeat,omitempty"`         // copies of a delivery after a 2xx response
	Tamper        Tamper `json:"tamper,omitempty"`         // forges a request before the delivery, and another one after a 2xx response
	RotatedSecret bool   `json:"rotated_secret,omitempty"` // additional signature with another secret, before the right one
	Padding       int    `json:"padding,omitempty"`        // spaces at the end of the body, in bytes

	// Variations of documents and events. A client must accept these variations (async-problem-details, sections 4.3 and F).
	JobStatus    string `json:"job_status,omitempty"`
	Unfinished   bool   `json:"unfinished,omitempty"`
	OtherEnd     bool   `json:"other_end,omitempty"` // show an ended job in another final state of the API
	Extensions   bool   `json:"extensions,omitempty"`
	NullOptional bool   `json:"null_optional,omitempty"`
	OmitOptional bool   `json:"omit_optional,omitempty"`
	ProblemType  string `json:"problem_type,omitempty"`
	Language     string `json:"language,omitempty"`
}

// Close says when the connection is closed.
type Close string

// When and how a fault closes a connection.
const (
	CloseBefore  Close = "before"       // the request has no effect and gets no response
	AfterCommit  Close = "after_commit" // the request has an effect, but its response is lost
	CloseMidBody Close = "mid_body"
	CloseNever   Close = "never" // no effect and no response; the connection stays open until the client hangs up, at most for MaxDelay
	CloseStall   Close = "stall" // half of the response, then nothing until the client hangs up, for at most MaxDelay
	CloseHalf    Close = "half"  // half-close: the service closes its sending side without having sent "Connection: close"
)

// Closes lists the values of Effect.Close. NextCloses lists the values of Effect.NextRequest.
var (
	Closes     = []Close{CloseBefore, AfterCommit, CloseMidBody, CloseNever, CloseStall}
	NextCloses = []Close{CloseBefore, CloseNever, CloseHalf}
)

// Moves lists the values of Effect.Moved.
var Moves = []int{303, 307, 308}

// TLS is a kind of TLS failure.
type TLS string

// The TLS faults.
const (
	TLSHandshake TLS = "handshake" // the handshake fails with an alert
	TLSExpired   TLS = "expired"
	TLSWrongHost TLS = "wrong_host"
)

// TLSes lists all faults of TLS.
var TLSes = []TLS{TLSHandshake, TLSExpired, TLSWrongHost}

// Languages lists the values of Effect.Language.
var Languages = []string{"de", "fr"}

// Replaces reports whether the request never reaches the service: the fault sends another response or none.
func (e *Effect) Replaces() bool {
	return e.Status != 0 || e.Code != "" || e.HTML || e.Moved != 0 || e.Unanswered()
}

// Unanswered reports whether the request has no effect and gets no response.
func (e *Effect) Unanswered() bool { return e.Close == CloseBefore || e.Close == CloseNever }

// OfStreams reports whether the fault disturbs event streams.
func (e *Effect) OfStreams() bool {
	return e.CutAfter != nil || e.HalfEventAfter != nil || e.StallAfter != nil || e.RepeatAfter > 0 || e.CommentsOnly ||
		e.ExtraEvents || e.StreamRetry > 0
}

// Disconnects reports whether the connection is closed after the response, or earlier.
func (e *Effect) Disconnects() bool {
	return e.Close != "" || e.SlowBytes > 0 || e.Refuse > 0 || e.TLS != ""
}

// Wait returns how long the fault delays the request. With CloseNever, it returns how long the connection stays open without a response.
func (e *Effect) Wait() time.Duration {
	if e.Close == CloseNever {
		return MaxDelay
	}
	return time.Duration(e.Delay)
}

// Held returns how long the fault delays the end of the response.
func (e *Effect) Held() time.Duration {
	if e.Close == CloseStall {
		return time.Duration(e.Delay) + MaxDelay
	}
	return e.Wait()
}

// OnNext returns the fault of the next request on the connection, or nil.
func (e *Effect) OnNext() *Effect {
	if e.NextRequest == "" {
		return nil
	}
	return &Effect{Close: e.NextRequest, Reset: e.Reset}
}

// OnStream returns the fault as it applies to an event stream. A lost response becomes a stream without events. A response that is cut
// in the middle becomes a stream that ends within the first event.
func (e *Effect) OnStream() *Effect {
	on := *e
	switch e.Close {
	case AfterCommit:
		on.CutAfter = new(0)
		return &on
	case CloseMidBody:
		on.HalfEventAfter = new(0)
	case CloseStall:
		on.StallAfter = new(0)
	}
	on.Close = ""
	return &on
}

// Rewrites reports whether the fault changes documents.
func (e *Effect) Rewrites() bool {
	return e.JobStatus != "" || e.Unfinished || e.OtherEnd || e.Extensions || e.NullOptional || e.OmitOptional || e.ProblemType != "" ||
		e.Language != ""
}

// Counted is a stored rule with two counts: Seen counts the requests that the rule matched, and Applied counts the requests to which the
// rule applied.
type Counted struct {
	Rule
	ID       string
	Position int
	Seed     int64
	Seen     int64
	Applied  int64
	Subject  string         // for Match.Same: subject to which the rule applies
	Age      *time.Duration // time since the rule first applied; nil if it never did
}

// View is the JSON form of a rule with its counts.
type View struct {
	RuleID  string `json:"rule_id"`
	Match   Match  `json:"match"`
	Effect  Effect `json:"effect"`
	Seed    int64  `json:"seed"`
	Seen    int64  `json:"seen"`
	Applied int64  `json:"applied"`
}

// ViewOf returns the view of a stored rule.
func ViewOf(c Counted) View { return View{c.ID, c.Match, c.Effect, c.Seed, c.Seen, c.Applied} }

// Window reports whether the rule disturbs a series of requests that begins with request Nth.
func (m *Match) Window() bool { return m.Times > 0 || m.For > 0 }

// Applies reports whether the rule disturbs request number Seen. The result depends on Seen, Seed and Position. For a window (see
// Match.Window), the result depends on Seen, Applied and Age.
func (c *Counted) Applies() bool {
	switch m := c.Match; {
	case m.Window():
		return c.Seen >= int64(m.Nth) && (c.Applied < int64(max(1, m.Times)) || c.Age != nil && *c.Age < time.Duration(m.For))
	case m.Nth > 0:
		return c.Seen == int64(m.Nth)
	case m.Every > 0:
		return c.Seen%int64(m.Every) == 0
	case m.Probability > 0:
		return draw(c.Seed, c.Position, c.Seen) < m.Probability
	default:
		return true
	}
}

// Subject identifies a request for Match.Same by method, path and idempotency key. Without a key, the body replaces the key.
func Subject(method, path string, key, body []byte) string {
	h := fnv.New128a()
	for _, part := range [][]byte{[]byte(method), []byte(path), key} {
		_, _ = h.Write(append(part, 0))
	}
	if len(key) == 0 {
		_, _ = h.Write(body)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// draw returns a pseudo-random number in [0, 1). Equal arguments lead to the same number.
func draw(seed int64, position int, n int64) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%d/%d", seed, position, n)
	x := h.Sum64()
	x ^= x >> 33 // mix the bits, because FNV hashes of similar texts have similar upper bits
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	x ^= x >> 33
	return float64(x>>11) / (1 << 53)
}

// Duration is a duration with the JSON form "1.5s".
type Duration time.Duration

// MarshalJSON writes a text such as "1.5s".
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON reads a text such as "1.5s".
func (d *Duration) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil || string(b) == "null" {
		return err
	}
	parsed, err := time.ParseDuration(text)
	*d = Duration(parsed)
	return err
}

// Time is a moment with the JSON form of RFC 3339, in UTC and with microseconds.
type Time time.Time

// MarshalText writes t in UTC with microseconds.
func (t Time) MarshalText() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, "2006-01-02T15:04:05.000000Z"), nil
}

// UnmarshalText reads RFC 3339, including lower-case t and z.
func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := time.Parse(time.RFC3339Nano, strings.ToUpper(string(text)))
	*t = Time(parsed)
	return err
}

// TimeOf returns a *Time for an optional moment.
func TimeOf(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	v := Time(*t)
	return &v
}
