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

// TerminalStatus reports whether a jobStatus is one of those that never change. The comparison is case-sensitive (draft, section 3.3).
func TerminalStatus(status string) bool {
	switch status {
	case StatusCompleted, StatusFailed, StatusCancelled, StatusTimedOut, StatusCompletedWithErrors:
		return true
	}
	return false
}

// Resubmission, draft sections 3.7 and 9.4.
const (
	MaxSubmissions = 5           // of one piece of work, the first one included
	minRetryDelay  = time.Second // whatever the server says
	maxRetryDelay  = time.Hour   // beyond it a retry is impractical
)

// Outcome is the document of draft-ratnawat-httpapi-async-problem-details: how an attempt or a batch stands or ended. Any member may be
// absent; one of the wrong type counts as absent. Its Status is what a synchronous answer would have been, not the status of the answer
// that brought it.
type Outcome struct {
	OutcomeDocument

	Violations []Violation   `json:"violations"` // of an item of a batch that was refused
	Results    []ItemOutcome `json:"results"`    // of a batch: items that failed
	Emitted    *Emission     `json:"emitted"`    // of event.emitted

	Extensions map[string]json.RawMessage `json:"-"` // members that are not known here
	ReceivedAt time.Time                  `json:"-"` // when this program got it
	Warnings   []string                   `json:"-"` // what was ignored because it contradicts the draft

	retryable bool // the member; Retryable weighs it
}

// ParseOutcome reads an outcome document from any source: HTTP, a webhook, an event stream, a broker. The content type may be "" if it is
// not known. The caller logs the Warnings (draft, section 3.5).
func ParseOutcome(contentType string, body []byte) (*Outcome, error) {
	return parseOutcome(contentType, body, time.Now())
}

func parseOutcome(contentType string, body []byte, now time.Time) (*Outcome, error) {
	if kind := mediaType(contentType); contentType != "" && kind != problemType && kind != "application/json" {
		return nil, fmt.Errorf("client: an outcome document is JSON, not %q", contentType)
	}
	o := &Outcome{}
	if err := json.Unmarshal(body, o); err != nil {
		return nil, fmt.Errorf("client: not an outcome document: %w", err)
	}
	o.ReceivedAt = now
	return o, nil
}

// UnmarshalJSON reads the document member by member: encoding/json would take names in any case, and end with the first member of a wrong
// type.
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
	// Without a jobStatus nothing contradicts completedAt (draft, section 3.5).
	if !o.CompletedAt.IsZero() && o.JobStatus != "" && !o.Terminal() {
		o.CompletedAt = time.Time{}
		o.Warnings = append(o.Warnings, fmt.Sprintf("completedAt is ignored: the jobStatus %q is not terminal", line(o.JobStatus)))
	}
	return nil
}

// MarshalJSON writes the members that are known, under the draft's names, and Extensions; zero values are left out, which means the same.
// ReceivedAt and Warnings are not of the document.
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

// Terminal reports whether the job has ended. An absent or unknown jobStatus means that it has not.
func (o *Outcome) Terminal() bool { return TerminalStatus(o.JobStatus) }

// Retryable reports whether the same work may be submitted again. It is the one way to ask, of a job's Failure as of a batch item's: the
// member retryable is true, and nothing says that the job goes on or succeeded. A retryAfter alone is no permission.
func (o *Outcome) Retryable() bool {
	return o.retryable && (o.JobStatus == "" || o.Terminal() && o.JobStatus != StatusCompleted)
}

// RetryDelay gives the wait until the work may be submitted again, after it was submitted try times (from 1). It is not ok to do so if
// the failure is not retryable, after MaxSubmissions, or if the server asks for more than an hour.
//
// retryAfter counts from completedAt, or from the receipt of a document without one. The wait is at least a second, grows exponentially
// and has jitter, whatever the server says (draft, sections 3.7 and 9.4).
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

// age is the time since retryAfter counts, never negative: a server's clock may be ahead.
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

// received sets the time of receipt, and logs what contradicts the draft.
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

// members are those of a JSON object, by their exact names.
type members map[string]json.RawMessage

// named are the fields of the struct that into points to which have a name in JSON.
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

// fill moves the members into the fields of the struct that into points to.
func (m members) fill(into any) {
	for name, field := range named(into) {
		m.take(name, field.Addr().Interface())
	}
}

// take moves a member into the field that into points to. One that is null or of the wrong type is dropped, and leaves the field
// unchanged.
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

// seconds takes an integer that is not negative, limited to 32 bits; nil for anything else.
func (m members) seconds(name string) *int {
	raw, ok := m[name]
	delete(m, name)
	if !ok || !strings.ContainsAny(string(raw[:1]), "-0123456789") {
		return nil
	}
	number, err := strconv.ParseFloat(string(raw), 64) // infinite beyond its range
	if err != nil && !errors.Is(err, strconv.ErrRange) || number < 0 || number != math.Trunc(number) {
		return nil
	}
	seconds := int(min(number, math.MaxInt32))
	return &seconds
}
