package handlers

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

var allOfAJob = []string{job.EventCreated, job.EventQueued, job.EventAssigned, job.EventRunning}

var allFrames = []string{"job-created", "job-queued", "job-assigned", "job-running"}

// Promise: patterns Server-Sent Events
func TestJobStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated)
	r := th.ask("GET", jobStream)
	require.Equal(t, 200, r.StatusCode)
	for name, value := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no",
		"X-Content-Type-Options": "nosniff", "RateLimit": `"minute";r=5999;t=1`, "Vary": "Accept",
	} {
		require.Equal(t, value, r.Header.Get(name), name)
	}
	require.True(t, r.Close, "Connection: close")
	require.Empty(t, r.Header.Get("Content-Length"))
	require.NotEmpty(t, r.Header.Get("Date"))
	mustID(r.Header.Get("X-Request-Id"))

	start := r.block()
	require.NotZero(t, start.retry)
	require.Empty(t, start.id)
	created := r.next()
	require.Equal(t, "1", created.id)
	require.Equal(t, "job-created", created.event)
	var v api.Event
	require.NoError(t, json.Unmarshal([]byte(created.data), &v))
	require.Equal(t, jobID, *v.JobID)
	require.Equal(t, job.EventCreated, v.EventName)
	require.Contains(t, created.data, `{"work_kind":"FAST_SUCCESS","t":"<&>"}`)

	th.history.record(jobID, job.EventQueued, job.EventAssigned)
	th.history.record(jobID, job.EventRunning)
	r.events("job-queued", "job-assigned", "job-running")
	th.history.record(jobID, job.EventEmitted, job.EventFailed, job.EventRetriesExhausted)
	ended := r.events("event-emitted", "job-failed", "job-retries-exhausted")
	var d job.Document
	require.NoError(t, json.Unmarshal([]byte(ended[1].data), &d))
	require.Equal(t, job.StatusFailed, d.JobStatus)
	require.Equal(t, "/v1/jobs/"+jobID.String()+"/attempts/1", d.Instance)
	require.True(t, d.IsProblem())
	r.end()
	th.closed(stream.EndOfJob, 1)

	require.NotContains(t, th.ended(), goodKey)
	lines := th.log.Lines(t, nil)
	require.Len(t, lines, 2, "one at the start, one at the end")
	require.Equal(t, []any{"stream ended", "end", 7.0, r.Header.Get("X-Request-Id")},
		[]any{lines[1]["msg"], lines[1]["reason"], lines[1]["events"], lines[1]["request_id"]})
}

// A reader that comes back after the end is told to stay away, until there is more;
// one that missed some gets the rest.
func TestStreamOfAnEndedJob(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, append(allOfAJob, job.EventFailed)...)
	r := th.open(jobStream, "Last-Event-ID", "3")
	r.events("job-running", "job-failed")
	require.Equal(t, "5", r.lastID)
	r.end()
	for _, method := range []string{"GET", "HEAD"} {
		require.Equal(t, 204, th.ask(method, jobStream, "Last-Event-ID", "5").StatusCode)
	}
	th.history.record(jobID, job.EventRetried)
	again := th.open(jobStream, "Last-Event-ID", r.lastID)
	again.events("job-retried")
	th.history.record(jobID, job.EventAssigned, job.EventRunning, job.EventSucceeded)
	blocks := again.events("job-assigned", "job-running", "job-succeeded")
	require.Contains(t, blocks[2].data, `"attempt":2`)
	again.end()
}

func TestClientStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated)
	r := th.ask("GET", clientStream)
	start := r.block()
	require.NotEmpty(t, start.id, "where to go on")
	th.history.watched(t, 1)
	th.history.record(secondID, job.EventCreated)
	th.history.record(foreignID, job.EventCreated)
	th.history.record(jobID, job.EventQueued, job.EventCanceled)
	th.history.change(func() {
		batch := &job.Batch{ID: foreignID, ClientID: clientA, Language: "en",
			Outcome: &job.BatchOutcome{Status: job.StatusCompleted, CompletedAt: now}}
		th.history.owners[job.ID{}] = clientA
		th.history.events = append(th.history.events, job.Occurrence{
			Event: job.Event{ID: foreignID, Name: job.EventBatchCompleted, At: now, Data: json.RawMessage(`{}`)}, Batch: batch,
			Position: job.Position{Tx: uint64(100 + len(th.history.events)), ID: foreignID},
		}, job.Occurrence{
			Event: job.Event{ID: eventID, Name: job.EventWebhookDisabled, At: now, Data: json.RawMessage(`{"webhookId":"` + webhookID.String() +
				`","reason":"GONE","text":"Gone.","disabledAt":"2030-01-31T12:00:00.123456Z"}`)},
			Position: job.Position{Tx: uint64(101 + len(th.history.events)), ID: eventID}, Webhook: webhookID,
		})
	})
	th.history.record(secondID, job.EventQueued)
	all := []string{"job-created", "job-queued", "job-canceled", "batch-completed", "webhook-disabled", "job-queued"}
	blocks := r.events(all...)
	for i, part := range map[int]string{0: secondID.String(), 2: `"jobStatus":"CANCELLED"`, 3: `"instance":"/v1/batches/`,
		4: `"seq":null,"job_id":null,"webhook_id":"` + webhookID.String()} {
		require.Contains(t, blocks[i].data, part)
	}
	listed, err := json.Marshal(th.list(clientStream).Data[5])
	require.NoError(t, err)
	require.JSONEq(t, blocks[4].data, string(listed))

	// Cut off before the first event, it gets all of them by the first id, which is also the cursor of the list.
	require.Equal(t, blocks, th.open(clientStream, "Last-Event-ID", start.id).events(all...))
	require.Equal(t, blocks[3:], th.open(clientStream+"?cursor="+blocks[2].id).events(all[3:]...))
	require.Equal(t, blocks[4:], th.open(clientStream+"?cursor="+start.id, "Last-Event-ID", blocks[3].id).events(all[4:]...))
}

// What is committed, but may still be preceded by something, comes when it can.
func TestHeldEvents(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	r := th.open(clientStream)
	th.history.watched(t, 1)
	th.history.change(func() { th.history.withheld = 2 })
	th.history.record(jobID, job.EventCreated, job.EventQueued)
	th.history.change(func() { th.history.reads = 0 })
	th.history.read(t, 2)         // it reads again without a notification
	for note := ""; note == ""; { // a heartbeat may come first
		note = r.block().note
	}
	th.history.change(func() { th.history.withheld = 1 })
	r.events("job-created")
	th.history.change(func() { th.history.withheld = 0 })
	r.events("job-queued")
}

func TestStreamSurvivesStorage(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = 20 * time.Millisecond })
	th.history.record(jobID, job.EventCreated)
	r := th.open(jobStream)
	r.events("job-created")
	th.history.watched(t, 1)
	th.history.change(func() {
		th.history.failing = job.Errorf(job.CodeStorageUnavailable, "away")
		th.clients.change(func() { th.clients.down = th.history.failing })
		th.history.reads = 0
	})
	th.history.record(jobID, job.EventQueued)
	th.history.read(t, 2)
	require.True(t, r.block().comment, "it stays alive")
	th.history.change(func() { th.history.failing = errors.New("of another kind") })
	th.history.record(jobID, job.EventAssigned)
	require.True(t, r.block().comment)
	th.history.change(func() { th.history.failing = nil })
	r.events("job-queued", "job-assigned")
}

func TestDeletedJobEndsItsStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated)
	r := th.open(jobStream)
	r.events("job-created")
	th.history.watched(t, 1)
	th.history.change(func() {
		th.history.publish(job.Notification{ClientID: clientA, JobID: jobID})
		delete(th.history.owners, jobID)
	})
	r.end()
	th.closed(stream.EndOfJob, 1)
}

func TestRevokedKeyEndsTheStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = 10 * time.Millisecond })
	r := th.open(jobStream)
	th.clients.change(func() { th.clients.down = job.Errorf(job.CodeStorageUnavailable, "away") })
	for range 3 {
		require.True(t, r.block().comment, "a key that cannot be checked is not a bad key")
	}
	th.clients.revoke(goodKey)
	th.clients.change(func() { th.clients.down = nil })
	r.end()
	th.closed(stream.Unauthorized, 1)
	require.Equal(t, 1.0, series(t, th.registry)["auth_failures_total "+string(job.CodeKeyDisabled)])
	require.Contains(t, th.ended(), `"error_code":"RFA_AUTH_API_KEY_DISABLED"`)
	require.Contains(t, th.ended(), `"job_id":"`+jobID.String()+`"`)
}

// Who is told that a key has changed does not wait for a heartbeat.
func TestStreamEndsWithTheNoticeOfItsKey(t *testing.T) {
	t.Parallel()
	for became, code := range map[string]job.Code{"revoked": job.CodeKeyDisabled, "expired": job.CodeTokenExpired} {
		th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = time.Hour })
		r := th.open(clientStream)
		th.clients.tell()
		require.True(t, r.block().comment, "the key is still good")
		th.clients.change(func() { th.clients.gone = map[string]string{goodKey: became} })
		th.clients.tell()
		r.end()
		th.closed(stream.Unauthorized, 1)
		require.Contains(t, th.ended(), `"error_code":"`+string(code)+`"`)
	}
}

// Storage may know of a revocation before the notification comes. The reads of the key end its streams then.
func TestARefusedReadEndsTheStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	readers := []*reader{th.open(jobStream), th.open(clientStream)}
	foreign := th.open(clientStream, "Authorization", "Bearer "+otherKey)
	th.history.watched(t, 3)
	refusal := job.Errorf(job.CodeKeyDisabled, "The key was revoked.")
	th.history.change(func() { th.history.refused = map[string]error{"good": refusal} })
	th.history.record(jobID, job.EventEmitted)
	for _, r := range readers {
		r.end()
	}
	th.closed(stream.Unauthorized, 2)
	th.ask("GET", clientStream).problem(job.CodeKeyDisabled)
	th.history.record(foreignID, job.EventEmitted)
	foreign.events("event-emitted")
}

func TestStreamRefusals(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, append(allOfAJob, job.EventFailed)...)
	foreign := th.ask("GET", clientStream, "Authorization", "Bearer "+otherKey).block().id
	own := th.ask("GET", clientStream).block().id
	require.NotEqual(t, foreign, own)
	for _, test := range []struct {
		path, name, value string
		code              job.Code
	}{
		{jobStream, "Authorization", "Bearer " + otherKey, job.CodeJobNotFound}, {"/v1/jobs/x/events", "", "", job.CodeJobNotFound},
		{jobStream, "Accept", "text/html", job.CodeNotAcceptable}, {jobStream + "?after=1", "", "", job.CodeMalformed},
		{jobStream + "?cursor=" + own, "", "", job.CodeMalformed}, {clientStream + "?cursor=" + own[1:], "", "", job.CodeMalformed},
		{clientStream + "?cursor=" + foreign, "", "", job.CodeMalformed}, {clientStream, "Last-Event-ID", foreign, job.CodeMalformed},
		{clientStream, "Last-Event-ID", "3", job.CodeMalformed}, {jobStream, "Last-Event-ID", own, job.CodeMalformed},
		{jobStream, "Last-Event-ID", "1\r\nLast-Event-ID: 2", job.CodeMalformed},
	} {
		th.ask("GET", test.path, test.name, test.value).problem(test.code)
	}
	for _, id := range []string{"6", "0", "-1", "01", "1.0", "1 2", "99999999999999999999", "x", "١", strings.Repeat("1", 5000)} {
		th.ask("GET", jobStream, "Last-Event-ID", id).problem(job.CodeMalformed)
	}
	th.history.change(func() { th.history.failing = job.Errorf(job.CodeStorageUnavailable, "away") })
	th.ask("GET", jobStream).problem(job.CodeStorageUnavailable)
	th.ask("GET", clientStream).problem(job.CodeStorageUnavailable)
}

// Nobody tells the stream of what happens between its first read and its watch.
func TestNothingIsLostBeforeTheWatch(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.beforeWatch = func() { th.history.record(jobID, job.EventCreated) }
	th.open(jobStream).events("job-created")
	th.open(clientStream).events("job-created")
}

func TestStreamNegotiation(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, job.EventCreated)
	const list, events = "application/json", "text/event-stream"
	for accept, media := range map[string]string{
		events: events, "application/json;q=0.5, text/*": events, "": list, "*/*": list, "text/event-stream, */*": list,
		"text/event-stream;q=0.5, application/json": list, "text/event-stream;q=0, */*": list,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			r := th.ask(method, jobStream, "Accept", accept)
			require.Equal(t, 200, r.StatusCode, accept)
			require.Equal(t, media, r.Header.Get("Content-Type"), "%s %s", method, accept)
			require.Equal(t, "Accept", r.Header.Get("Vary"))
			_ = r.conn.Close()
		}
	}
}
