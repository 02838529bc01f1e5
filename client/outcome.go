package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"time"
)

const problemType = "application/problem+json"

// TerminalStatus reports whether a jobStatus never changes again. The comparison is case-sensitive (async-problem-details, section 3.3).
func TerminalStatus(status string) bool {
	switch status {
	case StatusCompleted, StatusFailed, StatusCancelled, StatusTimedOut, StatusCompletedWithErrors:
		return true
	}
	return false
}

// Limits of resubmission (async-problem-details, sections 3.7 and 9.4).
const (
	MaxSubmissions = 5           // maximum submissions of the same work, including the first one
	minRetryDelay  = time.Second // minimum, even if retryAfter is less
	maxRetryDelay  = time.Hour   // RetryDelay refuses longer waits
)

// Outcome is the state or result of an attempt or a batch, as defined in draft-ratnawat-httpapi-async-problem-details. Any member may be
// absent; members of the wrong type are ignored. Status is the HTTP status that a synchronous request would have returned. The response
// that contains the document can have another status.
type Outcome struct {
	OutcomeDocument

	Violations []Violation   `json:"violations"` // of a refused batch item
	Results    []ItemOutcome `json:"results"`    // failed items of a batch
	Emitted    *Emission     `json:"emitted"`    // for event.emitted

	Extensions map[string]json.RawMessage `json:"-"` // unknown members
	ReceivedAt time.Time                  `json:"-"`
	Warnings   []string                   `json:"-"` // values that contradict the draft and were therefore ignored

	retryable bool // as in the document; Retryable also checks JobStatus
}

// ParseOutcome parses an outcome document from any source: HTTP, a webhook, an event stream, a broker. contentType may be "" if unknown.
// The caller should log Warnings (async-problem-details, section 3.5).
func ParseOutcome(contentType string, body []byte) (*Outcome, error) {
	return parseOutcome(contentType, body, time.Now())
}

func parseOutcome(contentType string, body []byte, now time.Time) (*Outcome, error) {
	if kind := mediaType(contentType); contentType != "" && kind != problemType && kind != "application/json" {
		return nil, fmt.Errorf("client: the media type of an outcome document must be JSON, not %q", contentType)
	}
	o := &Outcome{}
	if err := json.Unmarshal(body, o); err != nil {
		return nil, fmt.Errorf("client: not an outcome document: %w", err)
	}
	o.ReceivedAt = now
	return o, nil
}

// UnmarshalJSON decodes the document member by member. encoding/json would ignore case in names and refuse a document with one wrong type.
func (o *Outcome) UnmarshalJSON(text []byte) error {
	var m members
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	*o = Outcome{ReceivedAt: time.Now()}
	o.RetryAfter = m.seconds("retryAfter")
	m.take("retryable", &o.retryable)
	m.fill(o)
	o.Extensions = m
	// completedAt contradicts a jobStatus that is not terminal, but not a missing one (async-problem-details, section 3.5).
	if !o.CompletedAt.IsZero() && o.JobStatus != "" && !o.Terminal() {
		o.CompletedAt = time.Time{}
		o.Warnings = append(o.Warnings, fmt.Sprintf("completedAt is ignored: the jobStatus %q is not terminal", line(o.JobStatus)))
	}
	return nil
}

// MarshalJSON encodes the known members and the Extensions. It omits members with a zero value, because an absent member means the same.
// ReceivedAt and Warnings are not part of the document.
func (o Outcome) MarshalJSON() ([]byte, error) {
	document := map[string]any{}
	for name, value := range o.Extensions {
		document[name] = value
	}
	for name, field := range named(&o) {
		if !field.IsZero() {
			document[name] = field.Interface()
		}
	}
	if o.retryable {
		document["retryable"] = true
	}
	return json.Marshal(document)
}

// Terminal reports whether the job has ended. It returns false if jobStatus is absent or unknown.
func (o *Outcome) Terminal() bool { return TerminalStatus(o.JobStatus) }

// Retryable reports whether the same work may be submitted again. It is true if the document says so, and the job is neither running nor
// completed. A retryAfter alone is not enough.
func (o *Outcome) Retryable() bool {
	return o.retryable && (o.JobStatus == "" || o.Terminal() && o.JobStatus != StatusCompleted)
}

// RetryDelay returns the time to wait before the next submission of the work. `try` is the number of submissions so far. `ok` is false if
// the work must not be submitted again, or if retryAfter is more than an hour.
//
// retryAfter counts from completedAt, or from ReceivedAt if completedAt is absent. The wait is at least a second, grows with each
// submission, and has jitter (async-problem-details, sections 3.7 and 9.4).
func (o *Outcome) RetryDelay(now time.Time, try int) (wait time.Duration, ok bool) {
	return o.retryDelay(now, try, rand.Float64())
}

func (o *Outcome) retryDelay(now time.Time, try int, random float64) (time.Duration, bool) {
	if !o.Retryable() || try >= MaxSubmissions {
		return 0, false
	}
	backoff := exponential(minRetryDelay, maxRetryDelay, try)
	wait := backoff
	if o.RetryAfter != nil {
		if *o.RetryAfter > int(maxRetryDelay/time.Second) {
			return 0, false
		}
		wait = max(wait, time.Duration(*o.RetryAfter)*time.Second-o.age(now))
	}
	return wait + time.Duration(random*float64(backoff)/2), true
}

// age returns the time since completedAt, or else since ReceivedAt. It is never negative, even if the server's clock is ahead.
func (o *Outcome) age(now time.Time) time.Duration {
	from := o.CompletedAt
	if from.IsZero() {
		from = o.ReceivedAt
	}
	if from.IsZero() {
		return 0
	}
	return max(0, now.Sub(from))
}

func (c *Client) received(ctx context.Context, o *Outcome) {
	if o != nil {
		o.ReceivedAt = c.now()
		c.warn(ctx, o)
	}
}

func (c *Client) warn(ctx context.Context, o *Outcome) {
	for _, warning := range o.Warnings {
		c.log.WarnContext(ctx, "forgerun: inconsistent document", "jobId", line(o.JobID), "warning", warning)
	}
}

type members map[string]json.RawMessage

// named yields the struct's fields with their JSON names. `into` is a pointer to the struct.
func named(into any) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		value := reflect.ValueOf(into).Elem()
		for _, field := range reflect.VisibleFields(value.Type()) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && name != "-" && !yield(name, value.FieldByIndex(field.Index)) {
				return
			}
		}
	}
}

func (m members) fill(into any) {
	for name, field := range named(into) {
		m.take(name, field.Addr().Interface())
	}
}

// take removes a member from m and decodes it into the variable at `into`. A null value or a wrong type leaves the variable unchanged.
func (m members) take(name string, into any) {
	raw, ok := m[name]
	delete(m, name)
	if !ok || bytes.Equal(raw, []byte("null")) {
		return
	}
	field := reflect.ValueOf(into).Elem()
	value := reflect.New(field.Type())
	if json.Unmarshal(raw, value.Interface()) == nil {
		field.Set(value.Elem())
	}
}

// seconds removes a member and returns its value. A value above math.MaxInt32 becomes math.MaxInt32. seconds returns nil unless the value
// is a non-negative integer.
func (m members) seconds(name string) *int {
	raw, ok := m[name]
	delete(m, name)
	if !ok || !strings.ContainsAny(string(raw[:1]), "-0123456789") {
		return nil
	}
	number, err := strconv.ParseFloat(string(raw), 64) // infinite if the text is out of float64's range
	if err != nil && !errors.Is(err, strconv.ErrRange) || number < 0 || number != math.Trunc(number) {
		return nil
	}
	seconds := int(min(number, math.MaxInt32))
	return &seconds
}
