package handlers

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (th *streamServer) list(path string, headers ...string) query.List[api.Event] {
	th.t.Helper()
	r := th.ask("GET", path, append([]string{"Accept", "application/json"}, headers...)...)
	text, err := io.ReadAll(r.in)
	require.NoError(th.t, err)
	require.Equal(th.t, 200, r.StatusCode, string(text))
	bare, _, _ := strings.Cut(path, "?")
	require.NoError(th.t, apitest.New(th.t, docs.OpenAPI).Verify("GET", bare, r.Response, text))
	require.Equal(th.t, "Accept", r.Header.Get("Vary"))
	var list query.List[api.Event]
	require.NoError(th.t, json.Unmarshal(text, &list))
	require.NotNil(th.t, list.Data, "an empty list is []")
	return list
}

func (th *streamServer) walk(path string) (walked []api.Event, end string) {
	th.t.Helper()
	for at := path + "?limit=3"; ; {
		page := th.list(at)
		require.Equal(th.t, 3, page.Page.Limit)
		walked = append(walked, page.Data...)
		if page.Page.NextCursor == nil || len(page.Data) == 0 {
			return walked, end
		}
		end = url.QueryEscape(*page.Page.NextCursor)
		at = path + "?limit=3&cursor=" + end
	}
}

func TestListsOfEvents(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	all := th.list(jobStream)
	require.Len(t, all.Data, 5)
	require.Nil(t, all.Page.NextCursor)
	for i, e := range all.Data {
		require.Equal(t, i+1, *e.Seq)
		require.Equal(t, backend.Job, *e.JobID)
	}
	require.Equal(t, job.Succeeded, *all.Data[4].NextState)
	walked, _ := th.walk(jobStream)
	require.Equal(t, all.Data, walked)
	require.Empty(t, th.list(clientStream, "Authorization", "Bearer "+otherKey).Data)
	require.Nil(t, th.list(clientStream, "Authorization", "Bearer "+otherKey).Page.NextCursor, "an empty list has no cursor")

	id, _ := th.submitted()
	th.emit(id, 1, `{"work_kind":"x"}`)
	th.emit(backend.ForeignJob, 1, `{}`)
	var end string
	testkit.Eventually(t, "no older transaction is open", func() bool {
		walked, end = th.walk(clientStream)
		return len(walked) == 8
	})
	require.Nil(t, walked[7].NextState, "an annotation has no states")
	th.Move(id, job.Canceled)
	var page query.List[api.Event]
	testkit.Eventually(t, "the cursor returns the new event", func() bool {
		page = th.list(clientStream + "?cursor=" + end)
		return len(page.Data) == 1
	})
	require.NotEqual(t, end, *page.Page.NextCursor)
}

// Promise: patterns Server-Sent Events
func TestProgressOnAStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	id, path := th.submitted()
	th.Move(id, job.Assigned, job.Running)
	th.progress(id, 1, 10)
	r := th.open(path)
	r.events(allFrames...)
	require.Equal(t, 10, r.next().percentage(t), "stored progress")
	th.watched(1)
	for _, p := range []int{30, 20, 30, 40} {
		th.progress(id, 1, p)
	}
	for last := 10; last < 40; {
		p := r.next().percentage(t)
		require.Greater(t, p, last, "progress never decreases")
		last = p
	}
	th.progress(id, 1, 60)
	th.Move(id, job.Succeeded)
	b := r.next()
	if b.percentage(t) == 60 {
		b = r.next()
	}
	require.Equal(t, 100, b.percentage(t))
	require.Contains(t, b.data, `{"job_id":"`+id.String()+`","attempt":1,"progress":{"percentage":100,"phase":"DONE","steps_completed":100,`+
		`"steps_total":100,"items_processed":7,"items_total":7,`)
	r.events("job-succeeded")
	r.end()
}

// A stream that starts during an attempt also shows the attempt's progress. The latest progress is shown before a failure. The next
// attempt starts at zero.
func TestProgressOfAttempts(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	id, path := th.submitted()
	th.Move(id, job.Assigned, job.Running)
	th.progress(id, 1, 10)
	r := th.open(path, "Last-Event-ID", "4")
	require.Equal(t, 10, r.next().percentage(t))
	th.progress(id, 1, 70)
	th.Move(id, job.Failed)
	require.Equal(t, 70, r.next().percentage(t))
	r.events("job-failed")
	r.end()
	th.Move(id, job.Queued)
	r = th.open(path, "Last-Event-ID", "5")
	r.events("job-retried")
	th.watched(1)
	th.progress(id, 1, 80) // too late: attempt 1 has ended
	th.progress(id, 2, 5)  // too early: attempt 2 has not started
	th.Move(id, job.Assigned, job.Running)
	r.events("job-assigned", "job-running")
	require.Equal(t, 5, r.next().percentage(t), "progress restarts")
	th.Move(id, job.Canceled)
	r.events("job-canceled")
	r.end()
}

// TestResumingIsExact cuts streams at random points, also within frames, while events are recorded. It resumes with the last id, and
// must get every event once and in order.
// Promise: patterns Server-Sent Events
func TestResumingIsExact(t *testing.T) {
	t.Parallel()
	for _, ofClient := range []bool{false, true} {
		for seed := range uint64(2) {
			t.Run(strconv.FormatBool(ofClient)+strconv.FormatUint(seed, 10), func(t *testing.T) {
				t.Parallel()
				resumeExactly(t, ofClient, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	}
}

func resumeExactly(t *testing.T, ofClient bool, random *rand.Rand) {
	const events = 300
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = 3 * time.Millisecond })
	id, path := th.submitted()
	other, _ := th.submitted()
	th.Exec(`DELETE FROM events WHERE job_id = $1`, backend.Job.String())
	if ofClient {
		path = clientStream + "?cursor=" + first(th)
	}
	ctx, cancel := context.WithCancel(t.Context())
	recorded := make(chan struct{})
	pace := rand.New(rand.NewPCG(random.Uint64(), 1))
	go func() {
		defer close(recorded)
		for n := 0; n < events && ctx.Err() == nil; { // some events become visible late, and some have no notification
			release := func() {}
			if pace.IntN(4) == 0 {
				release = th.Begin(`SELECT pg_current_xact_id()`)
			}
			k := 1 + pace.IntN(30)
			th.emitSilently(id, k, `{"work_kind":"x"}`)
			th.emitSilently(other, 1, `{"work_kind":"x"}`)
			release()
			if n += k; pace.IntN(3) > 0 {
				th.Changed(backend.ClientA, id)
			}
		}
		th.Changed(backend.ClientA, id)
	}()
	defer func() { cancel(); <-recorded }()

	var got []string
	lastID := ""
	for len(got) < events {
		c := th.dial()
		th.write(c, th.request("GET", path, "Last-Event-ID", lastID))
		in := bufio.NewReader(io.LimitReader(c, int64(1+random.IntN(20_000))))
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
	<-recorded
	of := id.String()
	if ofClient {
		of = ""
	}
	want := repotest.All[string](t, th.URL(), `SELECT event_id::text FROM events WHERE client_id = $1 AND ($2 = '' OR job_id::text = $2)
		ORDER BY tx, job_id, seq`, backend.ClientA.String(), of)
	if ofClient {
		want = want[1:]
	}
	require.Equal(t, want[:events], got)
}

func first(th *streamServer) string {
	th.t.Helper()
	var cursor *string
	testkit.Eventually(th.t, "no older transaction is open", func() bool {
		cursor = th.list(clientStream + "?limit=1").Page.NextCursor
		return cursor != nil
	})
	return url.QueryEscape(*cursor)
}
