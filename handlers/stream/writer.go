package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"time"
)

// heartbeat is a comment, which readers ignore. It keeps idle connections open.
var heartbeat = []byte(":\n\n")

// heldNote explains to people why committed events are delayed.
var heldNote = []byte(": events wait until an open database transaction ends\n\n")

// PositionEvent is the name of the first event of a client's stream. With the id of this event, a reader can resume even if no other event
// has arrived. The event has data because many readers ignore the id of a block without data.
const PositionEvent = "position"

// Start returns the first block of a stream: the reconnection time and, unless `id` is "", the position.
func Start(id string) []byte {
	const least, spread = 1000, 2001 // ms; random, so that readers do not all reconnect at once
	b := strconv.AppendInt([]byte("retry: "), least+rand.Int64N(spread), 10)
	if id != "" {
		b = append(append(append(b, "\nid: "...), id...), "\nevent: "+PositionEvent+"\ndata: {}"...)
	}
	return append(b, "\n\n"...)
}

// writer frees its buffer after each flush, because most streams are idle.
type writer struct {
	conn  net.Conn
	stall time.Duration // time limit for writing a chunk
	buf   bytes.Buffer
}

// The buffer is flushed when it has at least this many bytes. Each write to the connection has at most this many bytes.
const chunk = 8 << 10

// frame appends a server-sent event (HTML standard, section 9.2), and flushes a full buffer. An event without an id leaves the reader's
// last id unchanged, and is not repeated after a resume.
func (w *writer) frame(id, event string, data any) error {
	if id != "" {
		w.buf.WriteString("id: " + id + "\n")
	}
	w.buf.WriteString("event: " + event + "\ndata: ")
	encoder := json.NewEncoder(&w.buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil { // writes one line and its line break
		return errors.Join(Internal, err)
	}
	w.buf.WriteByte('\n')
	if w.buf.Len() < chunk {
		return nil
	}
	return w.flush()
}

func (w *writer) flush() error {
	err := w.write(w.buf.Bytes())
	w.buf = bytes.Buffer{}
	return err
}

// write writes b in chunks. Each chunk must be written within w.stall. A slower reader would keep memory in use for too long.
func (w *writer) write(b []byte) error {
	for len(b) > 0 {
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
			return ClientGone
		}
		n, err := w.conn.Write(b[:min(len(b), chunk)])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return Stalled
		case err != nil:
			return ClientGone
		}
		b = b[n:]
	}
	return nil
}
