package client

import (
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

// where adds parameters of the query, names and values in turn; a value that is "" is left out.
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

// page adds the parameters that filters of lists share.
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

// List reads a list that has no method here, as Do does.
func (c *Client) List(ctx context.Context, path string, query url.Values) iter.Seq2[json.RawMessage, error] {
	return list[json.RawMessage](ctx, c, &request{method: http.MethodGet, path: path, query: query, limit: maxResult}, false)
}

// maxEmptyPages is how many empty pages of a list may follow each other.
const maxEmptyPages = 100

// list reads a list to its end, page by page as it is iterated. A page may be short or empty before that. If open, the last page has a
// cursor too, and is empty.
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

// collect reads a list into a slice.
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

// apiTime returns a time as the API takes it.
func apiTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// StreamOptions say what to watch.
type StreamOptions struct {
	JobID       string // "": all of the client's jobs, batches and webhooks
	LastEventID string // go on after it; "": a job from its beginning, all from now on
	// OnConnect is called, by the goroutine that reads, each time the stream is connected and its position is known: with the id after
	// which it goes on.
	OnConnect func(lastEventID string)
}

// Stream yields events as they happen, each once and none left out: when the connection is lost or silent for 45 s it connects again and
// goes on after the last event. It ends after the last event of a final job, when the context ends, and with an error that waiting does
// not help, such as a wrong key. An error is the last thing it yields. A service that has never answered is given up after
// Config.MaxTries.
func (c *Client) Stream(ctx context.Context, o StreamOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		r := get(nil, "events")
		if o.JobID != "" {
			r = get(nil, "jobs", o.JobID, "events")
		}
		r.base = c.base
		err := c.err
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

// Message is one event of a stream.
type Message struct {
	ID   string // resumes after it; "" for job-progress, which is not repeated
	Name string // of the frame: job-running, for example
	Data json.RawMessage
	// ReceivedAt is when it came, however long it waited for its reader.
	ReceivedAt time.Time

	client *Client // that logs inconsistent documents; nil for none
}

// Event reads the data as an event of the log. The ends of jobs and batches come as outcome documents instead: see Outcome.
func (m Message) Event() (*Event, error) {
	if m.IsOutcome() {
		return nil, fmt.Errorf("client: the data of %s is an outcome document", m.Name)
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

// Outcome reads the data as an outcome document.
func (m Message) Outcome() (*Outcome, error) {
	if !m.IsOutcome() {
		return nil, fmt.Errorf("client: the data of %s is not an outcome document", line(m.Name))
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

// Progress reads the data of job-progress.
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
