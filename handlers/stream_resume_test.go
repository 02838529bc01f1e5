package handlers

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/query"
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
	other := mustID("01890000-0000-7000-8000-000000000002")
	th.history.add(clientA, other)
	lastID := ""
	if path == clientStream {
		lastID = th.ask("GET", path).block().id // it is open before the first event
	}
	var recording sync.WaitGroup
	defer recording.Wait()
	pace := rand.New(rand.NewPCG(random.Uint64(), 1))
	recording.Go(func() { record(th.history, other, events, pace) })

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

// FuzzLastEventID sends any id: it is refused, or the stream starts after it.
func FuzzLastEventID(f *testing.F) {
	th := newStreamServer(f)
	th.history.record(jobID, allOfAJob...)
	own := th.ask("GET", clientStream).block().id
	for _, id := range []string{"", "1", "4", "5", "0", "-1", own, own[1:], own + "A", "AAAA", " 1", "1\t", "\x00", "é"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		if strings.ContainsAny(id, "\r\n") || len(id) > 4000 {
			return // another request
		}
		th := &streamServer{&world{t: t, server: th.server, url: th.url}, th.history}
		for _, path := range []string{jobStream, clientStream} {
			r := th.ask("GET", path, "Last-Event-ID", id)
			trimmed := strings.Trim(id, " \t")
			seq, isSeq := query.Positive(trimmed)
			switch {
			case path == jobStream && isSeq && seq <= 4, trimmed == "", path == clientStream && trimmed == own:
				require.Equal(t, 200, r.StatusCode, "%q", id)
				require.NotZero(t, r.block().retry)
				if path == jobStream && seq < 4 {
					require.Equal(t, strconv.Itoa(seq+1), r.next().id)
				}
			default:
				require.Equal(t, 400, r.StatusCode, "%q", id)
			}
			_ = r.conn.Close()
		}
	})
}
