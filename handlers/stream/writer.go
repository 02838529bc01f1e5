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

// heartbeat is a comment: readers ignore it, but the connection is in use.
var heartbeat = []byte(":\n\n")

// heldNote tells people why committed events do not come.
var heldNote = []byte(": events wait for a transaction that is open in the database\n\n")

// PositionEvent tells where to go on if a connection ends before its first event. It has data because many readers drop a block
// without it, with its id.
const PositionEvent = "position"

// Start tells the reader how long to wait before it connects again, and if id is given, that as the position.
func Start(id string) []byte {
	const least, spread = 1000, 2001 // ms; spread, so that not all come back at once
	b := strconv.AppendInt([]byte("retry: "), least+rand.Int64N(spread), 10)
	if id != "" {
		b = append(append(append(b, "\nid: "...), id...), "\nevent: "+PositionEvent+"\ndata: {}"...)
	}
	return append(b, "\n\n"...)
}

// writer writes frames to a connection. Between flushes it holds no buffer: idle streams are many.
type writer struct {
	conn  net.Conn
	stall time.Duration // within which the reader must take what is written at once
	buf   bytes.Buffer
}

// chunk is how many bytes are written at once. A buffer this full is flushed.
const chunk = 8 << 10

// frame appends a server-sent event (HTML standard, section 9.2), and flushes a buffer that is full enough. Without an id the
// reader's last id stays: a reader that resumes does not get the event again.
func (w *writer) frame(id, event string, data any) error {
	if id != "" {
		w.buf.WriteString("id: " + id + "\n")
	}
	w.buf.WriteString("event: " + event + "\ndata: ")
	encoder := json.NewEncoder(&w.buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(data); err != nil { // JSON in one line, and its end
		return errors.Join(Internal, err)
	}
	w.buf.WriteByte('\n')
	if w.buf.Len() < chunk {
		return nil
	}
	return w.flush()
}

// flush writes all frames.
func (w *writer) flush() error {
	err := w.write(w.buf.Bytes())
	w.buf = bytes.Buffer{}
	return err
}

// write writes b in chunks, and gives the reader the stall time for each: a slower one would hold memory for too long.
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
