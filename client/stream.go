package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"
)

// Reconnecting.
const (
	stalled        = 45 * time.Second // three heartbeats
	usualReconnect = 2 * time.Second  // until the service says otherwise
	minReconnect   = 100 * time.Millisecond
	maxReconnect   = 30 * time.Second
	lasting        = 10 * time.Second // a connection of that time ends a row of failures
)

// StreamOptions say what to watch.
type StreamOptions struct {
	JobID       string // "": all of the client's jobs, batches and webhooks
	LastEventID string // go on after it; "": a job from its beginning, all from now on
	// OnConnect is called, by the goroutine that reads, each time the stream is
	// connected and its position is known: with the id after which it goes on.
	OnConnect func(lastEventID string)
}

// Message is one event of a stream.
type Message struct {
	ID   string // resumes after it; "" for job-progress, which is not repeated
	Name string // of the frame: job-running, for example
	Data json.RawMessage
	// ReceivedAt is when it came, however long it waited for its reader.
	ReceivedAt time.Time

	client *Client // whose log is told of inconsistent documents; nil for none
}

// Event reads the data as an event of the log. The ends of jobs and batches
// come as outcome documents instead: see Outcome.
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
		err = errors.New("it tells no progress")
	}
	if err != nil {
		return nil, fmt.Errorf("client: %s: %w", line(m.Name), err)
	}
	return data.Progress, nil
}

// Stream yields events as they happen, each once and none left out: when the
// connection is lost or silent for 45 s it connects again and goes on after
// the last event. It ends after the last event of a final job, when the
// context ends, and with an error that waiting does not help, such as a wrong
// key. An error is the last thing it yields. A service that has never answered
// is given up after Config.MaxTries.
func (c *Client) Stream(ctx context.Context, o StreamOptions) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		s := &stream{c: c, o: o, lastID: o.LastEventID, retry: usualReconnect, yield: yield}
		r, err := get(nil, "v1", "events")
		if o.JobID != "" {
			r, err = get(nil, "v1", "jobs", o.JobID, "events")
		}
		if err == nil {
			err = c.err
		}
		if err == nil && !fieldValue(o.LastEventID) {
			err = errors.New("client: LastEventID has characters that a header cannot have")
		}
		if err != nil {
			yield(Message{}, err)
			return
		}
		s.request = r
		if err := s.follow(ctx); err != nil {
			yield(Message{}, err)
		}
	}
}

// stream is one run of Stream.
type stream struct {
	c       *Client
	o       StreamOptions
	request *request
	yield   func(Message, error) bool

	lastID    string        // of the last complete frame that had one
	retry     time.Duration // as the service last said
	connected bool          // at least once
	failures  int           // connections in a row that did not last
	ending    bool          // the last message may be the job's last
	hurried   bool          // it was connected at once in this row
}

var (
	errStop   = errors.New("the stream is at its end, or its reader has left")
	errSilent = errors.New("nothing came, not even a heartbeat")
)

// follow connects until the stream is over.
func (s *stream) follow(ctx context.Context) error {
	for {
		err := s.connection(ctx)
		if errors.Is(err, errStop) {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		asked, passing := mayPass(err)
		if !passing || (!s.connected && s.failures >= s.c.maxTries) {
			return err
		}
		wait := s.wait(err, asked)
		s.c.log.DebugContext(ctx, "forgerun: connecting a stream again", "path", s.request.path, "wait", wait, "error", err)
		if wait > 0 {
			if err := s.c.sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
}

func (s *stream) wait(err error, asked time.Duration) time.Duration {
	if s.ending && !s.hurried && errors.Is(err, io.EOF) {
		s.hurried = true
		return 0 // the job has ended: the next answer will say so
	}
	// Half of it more, at random: a restart sends many readers away at once.
	whole := exponential(s.retry, max(s.retry, maxReconnect), s.failures)
	return max(whole, min(asked, maxRetryDelay)) + time.Duration(s.c.rand()*float64(whole)/2)
}

// connection connects once and reads to the end of the connection.
func (s *stream) connection(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.failures++
	silence := time.AfterFunc(s.c.stall, func() { cancel(errSilent) })
	defer silence.Stop()

	s.request.set("Accept", "text/event-stream")
	if s.lastID != "" {
		s.request.set("Last-Event-Id", s.lastID)
	}
	response, err := s.c.transport.RoundTrip(s.c.build(ctx, s.request))
	if err != nil {
		return s.lost(err)
	}
	defer response.Body.Close()
	silence.Stop()
	switch {
	case response.StatusCode == http.StatusNoContent:
		return errStop
	case response.StatusCode != http.StatusOK:
		// The status and the headers count, even if the body does not come whole.
		body, _ := io.ReadAll(io.LimitReader(&watched{response.Body, silence, s.c.stall}, maxAnswer))
		return s.c.refusal(s.request, response, body, s.failures)
	case mediaType(first(response.Header, "Content-Type")) != "text/event-stream":
		return unexpected(s.request, response, nil, s.failures, "it is not an event stream")
	}
	s.connected = true
	began := s.c.now()
	err = s.read(&frameReader{r: &watched{response.Body, silence, s.c.stall}})
	if s.c.now().Sub(began) >= lasting {
		s.failures, s.hurried = 1, false // this end is the first of another row
	}
	return err
}

// read yields what comes over one connection.
func (s *stream) read(frames *frameReader) error {
	told := s.o.OnConnect == nil
	if !told && (s.o.JobID != "" || s.lastID != "") {
		told = true
		s.o.OnConnect(s.lastID)
	}
	for {
		f, err := frames.next()
		if err != nil {
			return s.broken(err)
		}
		if f.retry > 0 {
			s.retry = min(max(f.retry, minReconnect), maxReconnect)
		}
		repeated := f.id != "" && f.id == s.lastID
		if f.id != "" && !f.hasData {
			s.lastID = f.id // the position at which a stream of all begins
		}
		if !told {
			told = true
			s.o.OnConnect(s.lastID)
		}
		if !f.hasData || repeated {
			continue
		}
		if f.id != "" {
			s.lastID = f.id
		}
		m := Message{ID: f.id, Name: orDefault(f.event, "message"), Data: f.data, ReceivedAt: s.c.now(), client: s.c}
		s.ending = s.o.JobID != "" && (m.IsOutcome() || m.Name == "job-retries-exhausted")
		if !s.yield(m, nil) {
			return errStop
		}
	}
}

// broken tells a stream that breaks the format, which connecting again would
// not mend, from a connection that ended.
func (s *stream) broken(err error) error {
	if errors.Is(err, errLongLine) || errors.Is(err, errLongEvent) || errors.Is(err, errNotUTF8) {
		return &UnexpectedError{
			Method: http.MethodGet, Path: s.request.path, Status: http.StatusOK, Tries: 1,
			ContentType: "text/event-stream", Reason: err.Error(),
		}
	}
	return s.lost(err)
}

func (s *stream) lost(err error) error {
	return &NoAnswerError{Method: http.MethodGet, Path: s.request.path, Tries: max(1, s.failures), Err: err}
}

// watched ends a connection that brings no byte for a while, not even a
// heartbeat. The time in which the reader is busy with a message does not
// count.
type watched struct {
	io.Reader
	silence *time.Timer
	limit   time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	w.silence.Reset(w.limit)
	n, err := w.Reader.Read(p)
	w.silence.Stop()
	return n, err
}
