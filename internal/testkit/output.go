package testkit

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Output is a process's output, readable while the process runs.
type Output struct {
	First func() // called before the first write; may be nil

	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.buf.Len() == 0 && o.First != nil {
		o.First()
	}
	return o.buf.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// Lines parses the output as a JSON log and returns the entries with the given field values.
func (o *Output) Lines(t testing.TB, fields map[string]any) (found []map[string]any) {
	t.Helper()
	for line := range strings.Lines(o.String()) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		matches := true
		for k, v := range fields {
			matches = matches && entry[k] == v
		}
		if matches {
			found = append(found, entry)
		}
	}
	return found
}
