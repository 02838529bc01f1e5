package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// where adds query parameters. The pairs are name, value, name, value. It skips parameters with an empty value.
func (r *request) where(pairs ...string) *request {
	if r.query == nil {
		r.query = url.Values{}
	}
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			r.query.Set(pair[0], pair[1])
		}
	}
	return r
}

func (r *request) page(size int, after, before time.Time) *request {
	if size > 0 {
		r.where("limit", strconv.Itoa(size))
	}
	if !after.IsZero() {
		r.where("created_after", apiTime(after))
	}
	if !before.IsZero() {
		r.where("created_before", apiTime(before))
	}
	return r
}

// List reads all pages of a list for which this package has no method.
func (c *Client) List(ctx context.Context, path string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return list[json.RawMessage](ctx, c, &request{method: http.MethodGet, path: path, query: query, limit: maxResult}, false)
}

const maxEmptyPages = 100

// list iterates over a list and reads its pages on demand. Any page may be short or empty. A list ends at a page without a cursor. If
// `open` is set, every page has a cursor, and the list ends at the first empty page.
func list[T any](ctx context.Context, c *Client, first *request, open bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		r := *first
		r.query = url.Values{}
		maps.Copy(r.query, first.query)
		for empty := 0; ; {
			var page struct {
				Data []T `json:"data"`
				Page struct {
					NextCursor string `json:"next_cursor"`
				} `json:"page"`
			}
			a, err := c.call(ctx, &r, &page)
			if err == nil && page.Data == nil {
				err = r.unexpected(a, "it is not a list")
			}
			if err != nil {
				yield(none, err)
				return
			}
			for _, item := range page.Data {
				if !yield(item, nil) {
					return
				}
			}
			if empty++; len(page.Data) > 0 {
				empty = 0
			}
			next := page.Page.NextCursor
			switch {
			case next == "" || open && empty > 0:
				return
			case next == r.query.Get("cursor"):
				yield(none, r.unexpected(a, "its next_cursor is the cursor of the request: the list would never end"))
				return
			case empty == maxEmptyPages:
				yield(none, r.unexpected(a, "too many empty pages"))
				return
			}
			r.query.Set("cursor", next)
		}
	}
}

func collect[T any](list iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for item, err := range list {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

func apiTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// StreamOptions select the events to watch.
type StreamOptions struct {
	JobID       string // "": all of the client's jobs, batches and webhooks
	LastEventID string // start after the event with this id; "": start with the first event of JobID, or with new events if JobID is ""
	// OnConnect is called after each connect, by the goroutine that reads the stream. The stream continues after the event `lastEventID`.
	OnConnect func(lastEventID string)
}

// Stream yields each event exactly once as it happens. Stream reconnects after a lost connection or 45 s of silence, and continues after
// the last event. The stream ends after the last event of JobID and when the context ends. It also ends with a permanent error, such as
// an invalid key. An error is always the last value. If no connection has succeeded after Config.MaxTries tries, Stream gives up.
func (c *Client) Stream(ctx context.Context, o StreamOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		r := get(nil, "events")
		if o.JobID != "" {
			r = get(nil, "jobs", o.JobID, "events")
		}
		r.base = c.base
		err := cmp.Or(c.keyErr, c.sessionErr)
		if err == nil && !fieldValue(o.LastEventID) {
			err = errors.New("client: LastEventID has characters that a header cannot have")
		}
		if err == nil {
			s := &stream{c: c, o: o, request: r, lastID: o.LastEventID, reconnect: defaultReconnect, yield: yield}
			err = s.follow(ctx)
		}
		if err != nil {
			yield(Message{}, err)
		}
	}
}

// Message is an event of a stream.
type Message struct {
	ID   string // value for StreamOptions.LastEventID; "" for job-progress events
	Name string // such as job-running
	Data json.RawMessage
	// ReceivedAt is when the message arrived, even if the program reads it later.
	ReceivedAt time.Time

	client *Client // for warnings about inconsistent outcome documents; may be nil
}

// Event decodes the data into an Event. The last message about a job or batch is an outcome document: use Outcome.
func (m Message) Event() (*Event, error) {
	if m.IsOutcome() {
		return nil, fmt.Errorf("client: the data of %s is an outcome document: use Outcome to read it", m.Name)
	}
	event := &Event{}
	if err := json.Unmarshal(m.Data, event); err != nil {
		return nil, fmt.Errorf("client: %s: %w", line(m.Name), err)
	}
	return event, nil
}

// IsOutcome reports whether the data is an outcome document.
func (m Message) IsOutcome() bool {
	switch m.Name {
	case "job-succeeded", "job-failed", "job-canceled", "batch-completed":
		return true
	}
	return false
}

// Outcome decodes the data as an outcome document.
func (m Message) Outcome() (*Outcome, error) {
	if !m.IsOutcome() {
		return nil, fmt.Errorf("client: the data of %s is not an outcome document: use Event to read it", line(m.Name))
	}
	o, err := ParseOutcome("", m.Data)
	if err != nil {
		return nil, err
	}
	if !m.ReceivedAt.IsZero() {
		o.ReceivedAt = m.ReceivedAt
	}
	if m.client != nil {
		m.client.warn(context.Background(), o)
	}
	return o, nil
}

// Progress decodes the data of job-progress.
func (m Message) Progress() (*Progress, error) {
	var data struct {
		Progress *Progress `json:"progress"`
	}
	err := json.Unmarshal(m.Data, &data)
	if err == nil && data.Progress == nil {
		err = errors.New("it has no progress")
	}
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", line(m.Name), err)
	}
	return data.Progress, nil
}
