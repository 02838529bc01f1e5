package apptest

import (
	"bytes"
	"log/slog"
	"sync"
)

// tracingHandler writes the span of the context that a line is written with, as
// the program's logger does.
type TracingHandler struct{ slog.Handler }

// logBuffer is a log that can be read while it is written.
type LogBuffer struct {
	mu  sync.Mutex
	Buf bytes.Buffer
}
