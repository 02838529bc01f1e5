package testkit

import (
	"bytes"
	"sync"
)

// Output is what a process writes, readable meanwhile.
type Output struct {
	First func() // called before the first write; nil: not

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
