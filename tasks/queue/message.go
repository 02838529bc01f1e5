package queue

import (
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// message is what asynq keeps of a task.
type message struct {
	kind        string // asynq's type
	payload     []byte
	id, queue   string
	timeout     time.Duration // in whole seconds
	traceparent string        // "" for none
	failure     string        // of its last handler, "" for none
	failedAt    time.Time
}

// encode writes the message as asynq does, a protocol buffer whose fields do not change between versions; asynq itself has no way
// to make many, nor one with an error. Who else enqueues the task writes the same; only the header may differ.
func (m message) encode() []byte {
	b := make([]byte, 0, 64+len(m.payload)+len(m.id)+len(m.traceparent)+len(m.failure))
	b = appendText(b, 1, m.kind)
	b = appendText(b, 2, string(m.payload))
	b = appendText(b, 3, m.id)
	b = appendText(b, 4, m.queue)
	b = appendNumber(b, 5, MaxRetry)
	b = appendText(b, 7, m.failure)
	b = appendNumber(b, 8, int64(m.timeout/time.Second))
	if !m.failedAt.IsZero() {
		b = appendNumber(b, 11, m.failedAt.Unix())
	}
	// asynq refuses a task whose header is no UTF-8.
	if m.traceparent != "" && len(m.traceparent) <= MaxTraceparent && utf8.ValidString(m.traceparent) {
		header := appendText(appendText(nil, 1, TraceHeader), 2, m.traceparent)
		b = protowire.AppendBytes(protowire.AppendTag(b, 15, protowire.BytesType), header)
	}
	return b
}

func appendText(b []byte, field protowire.Number, value string) []byte {
	if value == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendNumber(b []byte, field protowire.Number, value int64) []byte {
	if value <= 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(value))
}
