package handlers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

// copying are Events whose data is read anew each time, as from storage.
type copying struct {
	Events
	reads *atomic.Int64
}

func (c copying) JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	log, err := c.Events.JobEvents(ctx, client, id, after, limit)
	for i := range log.Events {
		log.Events[i].Data = bytes.Clone(log.Events[i].Data)
	}
	c.reads.Add(1)
	return log, err
}

// Readers that take almost nothing of very much hold no more than a page each.
func TestSlowReadersHoldLittleMemory(t *testing.T) {
	const streams = 20
	var reads atomic.Int64
	th := newStreamServer(t, func(_ *Config, d *Deps) { d.Events = copying{d.Events, &reads} }) // not parallel: it measures the heap
	th.history.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 256<<10) + `"}`)
	for range 2 * stream.PageSize {
		th.history.record(jobID, job.EventEmitted)
	}
	before := heapInUse()
	for range streams {
		th.ask("GET", jobStream)
	}
	th.history.watched(t, streams)
	seen := int64(-1)
	require.Eventually(t, func() bool { // until all are stuck: nobody reads any more
		last := seen
		seen = reads.Load()
		return seen == last
	}, streamPatience, 200*time.Millisecond)
	used := heapInUse() - before
	t.Logf("%d slow streams: %d KiB", streams, used>>10)
	require.Less(t, used, int64(streams)*(2<<20))
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // buffers in pools survive the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// However long a page takes, a key that was revoked ends it soon.
func TestKeyIsCheckedWithinAPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHistory()
		h.add(clientA, jobID)
		h.data = json.RawMessage(`{"x":"` + strings.Repeat("x", 8<<10) + `"}`)
		for range 20 {
			h.record(jobID, job.EventEmitted)
		}
		keys := &keyring{keys: map[string]job.ID{goodKey: clientA}}
		s := New(Config{}, Deps{Reader: h, Events: h, Clients: keys})
		near, far := net.Pipe()
		release, err := s.limiter.Acquire(clientA)
		require.NoError(t, err)
		from := &jobSource{server: s, client: clientA, job: jobID}
		st := &stream.Stream{
			Source: from, JobID: jobID, Job: from.current, Client: clientA, Conn: near,
			Head: stream.Start(""), Release: release, Authorization: [][]byte{[]byte("Bearer " + goodKey)},
		}
		st.First, err = from.Read(t.Context(), stream.PageSize)
		require.NoError(t, err)
		require.Len(t, st.First.Events, 20)
		go s.streams.Run(st)
		in, events := bufio.NewReader(far), 0
		for {
			b, err := readBlock(in)
			if err != nil {
				break
			}
			if b.event == "event-emitted" {
				events++
				keys.change(func() { keys.keys = nil })
				time.Sleep(4 * time.Second)
			}
		}
		require.LessOrEqual(t, events, 6, "4 s for each, and a look at the key every 15 s")
		require.NoError(t, s.limiter.Wait(t.Context()))
		require.Equal(t, 1.0, testutil.ToFloat64(s.streams.Metrics.Closed.WithLabelValues(string(stream.Unauthorized))))
	})
}
