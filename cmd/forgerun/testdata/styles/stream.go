package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// streamOnly gets all outcomes from the client's stream of events.
func streamOnly(ctx context.Context, a *api) ([]*intention, error) {
	s, err := follow(ctx, a, "/v1/events", newInbox())
	if err != nil {
		return nil, err
	}
	jobs := intentions(6)
	err = a.submitAll(ctx, jobs)
	return jobs, errors.Join(err, s.outcomes(ctx, jobs))
}

// jobStream submits a job and gets its outcome from its own stream.
func jobStream(ctx context.Context, a *api) ([]*intention, error) {
	a.quick()
	jobs := intentions(1)
	err := a.submitAll(ctx, jobs)
	if err != nil || jobs[0].Ended != "" {
		return jobs, err
	}
	s, err := follow(ctx, a, "/v1/jobs/"+jobs[0].ID+"/events", newInbox())
	if err != nil {
		return nil, err
	}
	return jobs, s.outcomes(ctx, jobs)
}

// outcomes waits until the stream has sent the ends of all jobs, and stops it.
func (s *stream) outcomes(ctx context.Context, jobs []*intention) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		<-s.done // without the stream, there is nothing to wait for
		cancel()
	}()
	err := updateFromInbox(ctx, s.into, jobs)
	return errors.Join(err, s.stop())
}

// follow reads a stream of events into the inbox until stop is called. It returns after the stream has sent its position or first event,
// so it misses no later event.
func follow(ctx context.Context, a *api, path string, into *inbox) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &stream{
		a: a, path: path, into: into, wait: 3 * time.Second, positioned: make(chan struct{}), cancel: cancel, done: make(chan struct{}),
	}
	go func() {
		s.err = s.run(ctx)
		close(s.done)
	}()
	select {
	case <-s.positioned:
		return s, nil
	case <-s.done:
		cancel()
		return nil, s.err
	}
}

// stream reads a stream, and resumes it after a break.
type stream struct {
	a          *api
	path       string
	into       *inbox
	lastID     string
	positioned chan struct{} // closed when lastID is set
	first      sync.Once
	ended      bool          // the stream sent the end of a job
	wait       time.Duration // before the next connection; set by retry fields
	refused    bool          // the previous connection got 401
	breaks     int           // number of ended connections
	brokeAt    string        // lastID at the first break

	cancel context.CancelFunc
	done   chan struct{} // closed after the last connection
	err    error         // set when done is closed
}

// stop ends the stream, and returns the error that ended it before.
func (s *stream) stop() error {
	s.cancel()
	<-s.done
	if errors.Is(s.err, context.Canceled) {
		return nil
	}
	return s.err
}

func (s *stream) run(ctx context.Context) error {
	for try := 0; ; {
		again, err := s.connect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		if s.breaks++; s.breaks == 1 {
			s.brokeAt = s.lastID
		}
		if mistaken("breaks-counted") && s.breaks == 3 {
			return errors.New("the stream broke three times")
		}
		if again == 0 {
			try, again = 0, jitter(s.wait)
		} else {
			again = max(again, backoff(try))
			try++
		}
		if err := pause(ctx, again); err != nil {
			return err
		}
	}
}

// connect reads one connection to its end. If the service sent no stream, it returns the wait before the next try.
func (s *stream) connect(ctx context.Context) (again time.Duration, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	alarm := time.AfterFunc(answerLimit, cancel)
	defer alarm.Stop()
	r := request{method: "GET", path: s.path, header: map[string]string{"Accept": "text/event-stream"}, expected: true}
	if s.lastID != "" && !mistaken("stream-resume") {
		r.header["Last-Event-ID"] = s.lastID
	}
	if s.brokeAt != "" && mistaken("first-break-kept") {
		r.header["Last-Event-ID"] = s.brokeAt
	}
	req, err := s.a.request(ctx, r)
	if err != nil {
		return 0, err
	}
	res, err := s.a.http.Do(req)
	if err != nil {
		return s.wait, nil //nolint:nilerr // the connection was lost
	}
	defer func() { _ = res.Body.Close() }()
	got := response{status: res.StatusCode, header: res.Header}
	switch {
	case got.passing(r), got.status == http.StatusUnauthorized && (!s.refused || s.a.patient):
		s.refused = got.status == http.StatusUnauthorized
		return got.again(s.wait), nil
	case got.status != http.StatusOK || !strings.HasPrefix(got.header.Get("Content-Type"), "text/event-stream"):
		return 0, fmt.Errorf("the response to the stream request is %d %s", got.status, got.header.Get("Content-Type"))
	}
	s.refused = false
	before := s.lastID
	err = s.readEvents(res.Body, func() { alarm.Reset(silence) })
	if mistaken("stream-id-forgotten") && s.lastID == before {
		s.lastID = ""
	}
	return 0, err
}

// readEvents reads events until the stream ends. It drops an incomplete last event.
func (s *stream) readEvents(body io.Reader, heard func()) error {
	lines := bufio.NewReader(body)
	var id, name, data string
	for {
		heard()
		line, err := lines.ReadString('\n')
		if err != nil && (mistaken("half-events") || mistaken("half-taken") && s.breaks > 0) {
			return s.dispatch(id, name, "")
		}
		if err != nil {
			return nil //nolint:nilerr // ended, cut or silent: the caller reconnects
		}
		line = strings.TrimRight(line, "\r\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			if !strings.Contains(value, "\x00") {
				id = value
			}
		case "event":
			name = value
		case "data":
			data += value
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil && !mistaken("retry-of-streams-ignored") {
				s.wait = time.Duration(ms) * time.Millisecond
			}
		case "":
			if line != "" { // a comment
				continue
			}
			if err := s.dispatch(id, name, data); err != nil {
				return err
			}
			id, name, data = "", "", ""
		}
	}
}

func (s *stream) dispatch(id, name, data string) error {
	if _, known := ends[eventName(name)]; known && data != "" {
		t, err := parseNotice(name, []byte(data))
		if err != nil {
			return errors.Join(errors.New("an event is not JSON"), err)
		}
		s.into.add(t)
		s.ended = true
	} else if s.ended && strings.Contains(id+name, "later") && mistaken("unknown-event-ends-the-stream") {
		return errors.New("an event of an unknown type")
	}
	if id == "" {
		return nil
	}
	s.first.Do(func() { close(s.positioned) })
	s.lastID = id
	return nil
}
