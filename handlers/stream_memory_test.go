package handlers

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

// Readers that take almost nothing of very much hold no more than a page each.
func TestSlowReadersHoldLittleMemory(t *testing.T) {
	const streams = 20
	th := newStreamServer(t) // not parallel: it measures the heap
	th.history.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 256<<10) + `"}`)
	for range 2 * stream.PageSize {
		th.history.record(jobID, job.EventEmitted)
	}
	before := memory()
	for range streams {
		th.stuck(jobStream)
	}
	th.history.watched(t, streams)
	for last := -1; last != th.history.readSoFar(); { // until all are stuck: nobody reads any more
		last = th.history.readSoFar()
		time.Sleep(200 * time.Millisecond)
	}
	require.Less(t, memory()-before, int64(streams)*(2<<20))
}

func (h *history) readSoFar() (n int) {
	h.change(func() { n = h.reads })
	return n
}

// idleStreams opens n streams over real connections, each of which has sent an
// event, and gives what they cost in bytes each: memory that Go holds for heap
// and stacks, the test's own ends of the connections included.
func idleStreams(t *testing.T, n int) int {
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.MaxStreamsPerClient = n })
	th.history.record(jobID, job.EventCreated)
	buf := make([]byte, 16<<10)
	open := func(count int) {
		for range count {
			c := th.dial()
			th.write(c, th.request("GET", jobStream))
			for got := ""; !strings.HasSuffix(got, "}\n\n"); {
				k, err := c.Read(buf)
				require.NoError(t, err)
				got += string(buf[:k])
			}
		}
	}
	open(10)
	before := memory()
	open(n - 10)
	th.history.watched(t, n)
	return int(memory()-before) / (n - 10)
}

func memory() int64 {
	var m runtime.MemStats
	for range 4 { // stacks shrink by half at each collection, and buffers in pools survive the first
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func TestIdleStreamsAreSmall(t *testing.T) {
	const bound = 24 << 10 // 5,000 of them in 120 MB; under the race detector too
	require.Less(t, idleStreams(t, 300), bound)
}
