package handlers

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// The frames of event streams: server-sent events as of the HTML standard,
// section 9.2.

// frame is one event of a stream. Without an id it leaves the reader's last id
// as it is: whoever resumes does not get it again.
type frame struct {
	id    string
	event string
	data  any // JSON, in one line
}

// progressFrame is the data of job-progress.
type progressFrame struct {
	JobID    job.ID        `json:"job_id"`
	Attempt  int           `json:"attempt"`
	Progress *progressView `json:"progress"`
}

const progressEvent = "job-progress"

// frameOf renders an event. What ended an attempt or a batch comes with its
// outcome document (draft section 5.4).
func (s *Server) frameOf(id string, o *job.Occurrence) frame {
	f := frame{id: id, event: frameNames.Replace(o.Name)}
	switch {
	case o.Ended != nil:
		f.data = s.links.Document(o.Origin, *o.Ended)
	case o.Batch != nil:
		f.data = s.links.BatchDocument(o.Batch)
	default:
		f.data = occurrenceViewOf(*o)
	}
	return f
}

var frameNames = strings.NewReplacer(".", "-", "_", "-")

// heartbeat is a comment: readers ignore it, but the connection is in use.
var heartbeat = []byte(":\n\n")

// startFrame tells the reader how long to wait before it connects again, and if
// id is given, where to go on if the connection ends before the first event.
func startFrame(id string) []byte {
	const least, spread = 1000, 2001 // ms; spread, so that not all come back at once
	b := strconv.AppendInt([]byte("retry: "), least+rand.Int64N(spread), 10)
	if id != "" {
		b = append(append(b, "\nid: "...), id...)
	}
	return append(b, "\n\n"...)
}

// sseWriter writes frames to a connection. Between batches of frames it holds
// no memory: idle streams are many.
type sseWriter struct {
	conn  net.Conn
	stall time.Duration // within which the reader must take what is written at once
	buf   *bytes.Buffer // nil between flushes
}

var frameBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Bounds of a writer, in bytes: from the first on its buffer is written, and
// from the second on it is not kept for others; the third is written at once.
const (
	flushAt     = 8 << 10
	keepBuffer  = 64 << 10
	writeAtOnce = 8 << 10
)

// frame appends a frame, and writes what has gathered when it is enough.
func (w *sseWriter) frame(f frame) error {
	if w.buf == nil {
		w.buf = frameBuffers.Get().(*bytes.Buffer)
		w.buf.Reset()
	}
	if f.id != "" {
		w.buf.WriteString("id: " + f.id + "\n")
	}
	w.buf.WriteString("event: " + f.event + "\ndata: ")
	encoder := json.NewEncoder(w.buf)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(f.data); err != nil { // JSON in one line, and its end
		return errors.Join(endInternalError, err)
	}
	w.buf.WriteByte('\n')
	if w.buf.Len() < flushAt {
		return nil
	}
	return w.flush()
}

// flush writes all frames and gives the buffer back.
func (w *sseWriter) flush() error {
	if w.buf == nil {
		return nil
	}
	err := w.write(w.buf.Bytes())
	w.release()
	return err
}

func (w *sseWriter) release() {
	if w.buf != nil && w.buf.Cap() <= keepBuffer {
		frameBuffers.Put(w.buf)
	}
	w.buf = nil
}

// write writes b in pieces, and gives the reader the stall time for each: one
// that takes less than that is so slow that it holds memory for nothing.
func (w *sseWriter) write(b []byte) error {
	for len(b) > 0 {
		if err := w.conn.SetWriteDeadline(time.Now().Add(w.stall)); err != nil {
			return endClientGone
		}
		n, err := w.conn.Write(b[:min(len(b), writeAtOnce)])
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return endStalled
		case err != nil:
			return endClientGone
		}
		b = b[n:]
	}
	return nil
}
