package handlers

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// TestResumingIsExact cuts streams at arbitrary places, within frames too,
// while events are recorded, and comes back with the last id it has: it must
// get every event once and in order.
func TestResumingIsExact(t *testing.T) {
	t.Parallel()
	for _, path := range []string{jobStream, clientStream} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s %d", strings.Trim(path, "/"), seed), func(t *testing.T) {
				t.Parallel()
				resumeExactly(t, path, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	}
}

func resumeExactly(t *testing.T, path string, random *rand.Rand) {
	const events = 400
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = 3 * time.Millisecond })
	lastID := ""
	if path == clientStream {
		lastID = th.ask("GET", path).block().id // it is open before the first event
	}
	var recording sync.WaitGroup
	defer recording.Wait()
	pace := rand.New(rand.NewPCG(random.Uint64(), 1))
	recording.Go(func() { record(th.history, secondID, events, pace) })

	var got []string
	for rounds := 0; len(got) < events; rounds++ {
		require.Less(t, rounds, 10*events)
		c := th.dial()
		th.write(c, th.request("GET", path, "Last-Event-ID", lastID))
		cut := int64(1 + random.IntN(20_000))
		in := bufio.NewReader(io.LimitReader(c, cut))
		status, _ := in.ReadString('\n')
		for line := status; line != "\r\n" && line != ""; {
			line, _ = in.ReadString('\n')
		}
		for strings.Contains(status, " 200 ") && len(got) < events {
			b, err := readBlock(in)
			if err != nil {
				require.ErrorIs(t, err, io.EOF)
				break
			}
			if b.id != "" {
				lastID = b.id
			}
			if b.data != "" {
				_, id, _ := strings.Cut(b.data, `"event_id":"`)
				got = append(got, id[:36])
			}
		}
		_ = c.Close()
	}
	recording.Wait()
	var want []string
	for _, o := range th.history.events {
		if path == clientStream || o.JobID == jobID {
			want = append(want, o.ID.String())
		}
	}
	require.Equal(t, want[:events], got)
}

// record adds events to two jobs, some of them held for a while, and some of
// them not told of, which the next ones make good. Storage fails now and then.
func record(h *history, other job.ID, events int, random *rand.Rand) {
	for n := 0; n < events; {
		names := make([]string, random.IntN(30))
		for i := range names {
			names[i] = job.EventEmitted
		}
		h.change(func() {
			h.withheld = random.IntN(5)
			h.failing = nil
			if random.IntN(20) == 0 {
				h.failing = job.Errorf(job.CodeStorageUnavailable, "away")
			}
			for range random.IntN(3) {
				h.append(jobID, job.EventEmitted)
				n++
			}
		})
		h.record(jobID, names...)
		h.record(other, job.EventEmitted)
		n += len(names)
		time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
	}
	h.change(func() { h.withheld, h.failing = 0, nil })
	h.record(other, job.EventEmitted)
	h.record(jobID, job.EventEmitted)
}
