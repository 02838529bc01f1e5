package handlers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/jobs"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// TestResumingIsExact cuts streams at arbitrary points, within frames too,
// while events are recorded, and comes back with the last id it has: it must
// get every event once and in order.
// Promise: patterns Server-Sent Events
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
			if b.data != "" && b.event != stream.PositionEvent {
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

// history is an in-memory log of events with its watchers: all that a stream
// needs of the use cases.
type history struct {
	jobs.Reader // what streams do not use

	mu       sync.Mutex
	events   []job.Occurrence // in the order of their positions
	owners   map[job.ID]job.ID
	jobs     map[job.ID]*job.Job
	data     json.RawMessage  // of events recorded from now on
	withheld int              // so many of the latest events wait for a transaction
	failing  error            // the answer to every read of events, if set
	refused  map[string]error // the answer to reads by key, instead of events
	reads    int
	watchers map[chan job.Notification]job.Notification // what each hears, as client and job

	beforeWatch, beforeRead func() // happen right before a call, if set
}

func newHistory() *history {
	return &history{
		data: json.RawMessage(`{"work_kind": "FAST_SUCCESS",` + "\n" + ` "t": "<&>"}`), owners: map[job.ID]job.ID{},
		jobs: map[job.ID]*job.Job{}, watchers: map[chan job.Notification]job.Notification{},
	}
}

// add makes a job that has no events yet.
func (h *history) add(client, id job.ID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owners[id] = client
	h.jobs[id] = &job.Job{ID: id, ClientID: client, Attempt: 1, State: job.Created, WorkKind: job.SuccessFast, CreatedAt: now, Language: "en"}
}

// record adds the next event of a job and tells those who watch.
func (h *history) record(id job.ID, names ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range names {
		h.append(id, name)
	}
	h.publish(job.Notification{ClientID: h.owners[id], JobID: id})
}

var nextState = map[string]job.State{
	job.EventCreated: job.Created, job.EventQueued: job.Queued, job.EventAssigned: job.Assigned, job.EventRunning: job.Running,
	job.EventSucceeded: job.Succeeded, job.EventFailed: job.Failed, job.EventCanceled: job.Canceled, job.EventRetried: job.Queued,
}

func (h *history) append(id job.ID, name string) {
	j := h.jobs[id]
	j.EventSeq++
	if name == job.EventRetried {
		j.Attempt++
	}
	at := now.Add(time.Duration(len(h.events)) * time.Millisecond)
	o := job.Occurrence{
		Event: job.Event{
			ID: mustID(fmt.Sprintf("01890000-0000-7000-9000-%012d", len(h.events))), JobID: id, Seq: j.EventSeq, Name: name,
			Prev: j.State, Next: nextState[name], Attempt: j.Attempt, At: at, Data: h.data,
		},
		Position: job.Position{Tx: uint64(100 + len(h.events)), ID: id, Seq: j.EventSeq},
		Origin:   j.Origin(),
	}
	if o.Next != "" {
		j.State = o.Next
	} else {
		o.Prev = ""
	}
	if o.Next.Final() {
		ended := job.Attempt{Number: j.Attempt, State: o.Next, FinishedAt: &at}
		if o.Next == job.Failed {
			ended.Failure = job.NewFailure(job.FailedOnce, j.Attempt, job.Backoff{})
		}
		o.Ended = &ended
	}
	h.events = append(h.events, o)
}

// progress tells of progress, which becomes what is known of the job.
func (h *history) progress(id job.ID, attempt, percentage int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &job.Progress{
		Percentage: percentage, Phase: "WORKING", StepsCompleted: percentage, StepsTotal: 100, ItemsTotal: 7,
		UpdatedAt: now.Add(time.Duration(percentage) * time.Second),
	}
	if j := h.jobs[id]; j.Attempt == attempt {
		j.Progress = p
	}
	h.publish(job.Notification{ClientID: h.owners[id], JobID: id, Attempt: attempt, Progress: p})
}

// publish merges as the hub does.
func (h *history) publish(n job.Notification) {
	for c, wanted := range h.watchers {
		if n.ClientID != wanted.ClientID || !wanted.JobID.IsZero() && n.JobID != wanted.JobID || wanted.JobID.IsZero() && n.Progress != nil {
			continue
		}
		next := n
		select {
		case pending := <-c:
			if pending.Progress != nil && n.Progress == nil {
				next.Attempt, next.Progress = pending.Attempt, pending.Progress
			}
		default:
		}
		c <- next
	}
}

func (h *history) change(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f()
}

func (h *history) find(client, id job.ID) (*job.Job, error) {
	if h.failing != nil {
		return nil, h.failing
	}
	if h.owners[id] != client || client.IsZero() {
		return nil, errNoJob
	}
	j := *h.jobs[id]
	return &j, nil
}

func (h *history) Job(_ context.Context, client, id job.ID) (*job.Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	j, err := h.find(client, id)
	if err == nil && j.State != job.Running {
		j.Progress = nil
	}
	return j, err
}

func (h *history) JobEvents(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	if h.beforeRead != nil {
		h.beforeRead()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	j, err := h.find(client, id)
	if err = cmp.Or(err, h.refused[job.KeyOf(ctx)]); err != nil {
		return job.Log{}, err
	}
	log := job.Log{Last: j.EventSeq}
	for _, o := range h.events {
		if o.JobID == id && o.Seq > after && len(log.Events) < limit && dataBytes(log.Events) < fakePageBytes {
			o.Data = bytes.Clone(o.Data) // as from storage
			log.Events = append(log.Events, o)
		}
	}
	log.Ended = j.State.Final() && after+len(log.Events) >= j.EventSeq
	return log, nil
}

func (h *history) ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	if err := cmp.Or(h.failing, h.refused[job.KeyOf(ctx)]); err != nil {
		return job.Feed{}, err
	}
	var feed job.Feed
	for i, o := range h.events {
		if h.owners[o.JobID] != client || !after.Before(o.Position) {
			continue
		}
		if i >= len(h.events)-h.withheld {
			feed.Held = true
		} else if len(feed.Events) < limit && dataBytes(feed.Events) < fakePageBytes {
			feed.Events = append(feed.Events, o)
		} else {
			feed.More = true
		}
	}
	return feed, nil
}

// fakePageBytes is where a page ends, as in the real storage.
const fakePageBytes = 256 << 10

func dataBytes(events []job.Occurrence) (n int) {
	for _, o := range events {
		n += len(o.Data)
	}
	return n
}

func (h *history) FeedEnd(context.Context) (job.Position, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return job.Position{Tx: uint64(100 + len(h.events) - h.withheld)}, h.failing
}

func (h *history) Watch(client, id job.ID) (<-chan job.Notification, func()) {
	if h.beforeWatch != nil {
		h.beforeWatch()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := make(chan job.Notification, 1)
	h.watchers[c] = job.Notification{ClientID: client, JobID: id}
	return c, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, c)
	}
}

// watched waits until so many streams watch.
func (h *history) watched(t testing.TB, n int) {
	t.Helper()
	testkit.Eventually(t, "streams watch", func() (all bool) {
		h.change(func() { all = len(h.watchers) == n })
		return all
	})
}

// read waits until it was read so many times.
func (h *history) read(t testing.TB, n int) {
	t.Helper()
	testkit.Eventually(t, "events are read", func() (all bool) {
		h.change(func() { all = h.reads >= n })
		return all
	})
}
