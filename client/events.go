package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Events lists the events of all the client's jobs, batches and webhooks, oldest first, up to now. Stream goes on from there.
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return list[Event](ctx, c, get(nil, "events"), true)
}

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
