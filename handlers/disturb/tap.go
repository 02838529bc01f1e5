package disturb

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
)

// Tap notes which events go over a connection, and tells when it closes. It stands behind a Stream, so it sees what is sent.
type Tap struct {
	net.Conn
	rest  []byte
	close func() error

	mu       sync.Mutex
	exchange *verdict.Exchange
}

// NewTap notes in the exchange what is written to a connection, and calls done once, after it was closed.
func NewTap(c net.Conn, x *verdict.Exchange, done func()) *Tap {
	x.Stream = &verdict.Part{}
	t := &Tap{Conn: c, exchange: x}
	t.close = sync.OnceValue(func() error {
		err := c.Close()
		go func() { // who closes does not wait for storage
			t.mu.Lock() // nor is anything noted any more
			defer t.mu.Unlock()
			done()
		}()
		return err
	})
	return t
}

// Close closes the connection.
func (t *Tap) Close() error { return t.close() }

// Write writes b, and notes the events that are complete with it. It is called by one goroutine.
func (t *Tap) Write(b []byte) (int, error) {
	n, err := t.Conn.Write(b)
	t.rest = append(t.rest, b[:n]...)
	for {
		end := bytes.Index(t.rest, endOfEvent)
		if end < 0 {
			return n, err
		}
		t.note(t.rest[:end])
		t.rest = append(t.rest[:0], t.rest[end+len(endOfEvent):]...)
	}
}

// note notes an event, or passes over a comment.
func (t *Tap) note(block []byte) {
	var id, data []byte
	var retry int
	for line := range bytes.Lines(block) {
		line = bytes.TrimSuffix(line, []byte("\n"))
		switch {
		case bytes.HasPrefix(line, fieldID):
			id = line[len(fieldID):]
		case bytes.HasPrefix(line, fieldRetry):
			retry, _ = strconv.Atoi(string(line[len(fieldRetry):])) // which the service has written
		case bytes.HasPrefix(line, fieldData):
			data = line[len(fieldData):]
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	part := t.exchange.Stream
	part.Retry = cmp.Or(retry, part.Retry)
	if len(id) > 0 {
		if len(part.IDs) == verdict.MaxShown {
			part.IDs = slices.Delete(part.IDs, 0, 1)
		}
		part.IDs = append(part.IDs, string(id))
	}
	if name := eventOf(block); name != "" && name != stream.PositionEvent {
		part.Events++
		Jobs(data, t.exchange)
	}
}

// ends are the states of a job that has ended, in both vocabularies.
var ends = []string{"SUCCEEDED", "FAILED", "CANCELED", "COMPLETED", "COMPLETED_WITH_ERRORS", "TIMED_OUT", "CANCELLED"}

// Jobs notes the jobs that a document shows, with or without a final state, at whatever depth. A client that sees a state which
// it does not know takes it for one that is not final.
func Jobs(document []byte, x *verdict.Exchange) {
	var v any
	if json.Unmarshal(document, &v) == nil {
		walk(v, x)
	}
}

func walk(v any, x *verdict.Exchange) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			walk(item, x)
		}
	case map[string]any:
		if id, ok := textOf(v, "job_id", "jobId"); ok {
			if state, ok := textOf(v, "state", "jobStatus", "next_state"); ok {
				note(id, slices.Contains(ends, state), x)
			}
		}
		for _, member := range v {
			walk(member, x)
		}
	}
}

// note adds a job to those that were shown.
func note(text string, final bool, x *verdict.Exchange) {
	id, err := job.ParseID(text)
	if err != nil || len(x.Final)+len(x.Shown) >= verdict.MaxShown {
		return
	}
	list := &x.Shown
	if final {
		list = &x.Final
	}
	if known := id.String(); !slices.Contains(*list, known) {
		*list = append(*list, known)
	}
}

// textOf gives the first of the members that is a string.
func textOf(v map[string]any, names ...string) (string, bool) {
	for _, name := range names {
		if text, ok := v[name].(string); ok {
			return text, true
		}
	}
	return "", false
}
