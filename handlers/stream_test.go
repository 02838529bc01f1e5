package handlers

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/backend"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// Promise: patterns Server-Sent Events
func TestJobStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	id, path := th.submitted()
	before := len(th.log.Lines(t, nil))
	r := th.ask("GET", path)
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

	start := r.block()
	require.NotZero(t, start.retry)
	require.Empty(t, start.id)
	created := r.events("job-created", "job-queued")[0]
	require.Equal(t, "1", created.id)
	var v api.Event
	require.NoError(t, json.Unmarshal([]byte(created.data), &v))
	require.Equal(t, id, *v.JobID)
	require.Equal(t, job.EventCreated, v.EventName)

	th.Move(id, job.Assigned, job.Running)
	r.events("job-assigned", "job-running")
	th.emit(id, 1, `{"work_kind": "x", "t": "<&>"}`)
	require.Contains(t, r.events("event-emitted")[0].data, `{"t":"<&>","work_kind":"x"}`)
	th.Move(id, job.Failed)
	ended := r.events("job-failed")[0]
	var d job.Document
	require.NoError(t, json.Unmarshal([]byte(ended.data), &d))
	require.Equal(t, job.StatusFailed, d.JobStatus)
	require.Equal(t, "/v1/jobs/"+id.String()+"/attempts/1", d.Instance)
	require.True(t, d.IsProblem())
	r.end()
	th.closed(stream.EndOfJob, 1)

	require.NotContains(t, th.ended(), goodKey)
	lines := th.log.Lines(t, nil)[before:]
	require.Len(t, lines, 2, "one at the start, one at the end")
	require.Equal(t, []any{"stream ended", "end", 6.0, r.Header.Get("X-Request-Id")},
		[]any{lines[1]["msg"], lines[1]["reason"], lines[1]["events"], lines[1]["request_id"]})
}

// A reader that missed events gets the rest. A reader with all events gets 204, which stops it from reconnecting.
func TestStreamOfAnEndedJob(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	id, path := th.submitted()
	th.Move(id, job.Assigned, job.Running, job.Failed)
	r := th.open(path, "Last-Event-ID", "3")
	r.events("job-running", "job-failed")
	require.Equal(t, "5", r.lastID)
	r.end()
	for _, method := range []string{"GET", "HEAD"} {
		require.Equal(t, 204, th.ask(method, path, "Last-Event-ID", "5").StatusCode)
	}
	th.Move(id, job.Queued)
	again := th.open(path, "Last-Event-ID", r.lastID)
	again.events("job-retried")
	th.Move(id, job.Assigned, job.Running, job.Succeeded)
	blocks := again.events("job-assigned", "job-running", "job-succeeded")
	require.Contains(t, blocks[2].data, `"attempt":2`)
	again.end()
}

func TestClientStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.Exec(`DELETE FROM events`) // while other tests have open transactions, the stream may also show old events
	r := th.ask("GET", clientStream)
	start := r.block()
	require.NotEmpty(t, start.id, "the position to resume from")
	th.watched(1)
	id, _ := th.submitted()
	th.emit(backend.ForeignJob, 1, `{}`)
	th.Move(id, job.Canceled)
	th.failBatch()
	th.Exec(`INSERT INTO client_events (event_id, client_id, event_name, occurred_at, webhook_id, data) VALUES (uuid7(now()), $1,
		'webhook.disabled', now(), $2, $3)`, backend.ClientA.String(), backend.Webhook.String(), `{"webhookId":"`+backend.Webhook.String()+
		`","reason":"GONE","text":"Gone.","disabledAt":"2030-01-31T12:00:00.123456Z"}`)
	th.Changed(backend.ClientA, id)
	all := []string{"job-created", "job-queued", "job-canceled", "batch-completed", "webhook-disabled"}
	blocks := r.events(all...)
	for i, part := range map[int]string{0: id.String(), 2: `"jobStatus":"CANCELLED"`, 3: `"instance":"/v1/batches/`,
		4: `"seq":null,"job_id":null,"webhook_id":"` + backend.Webhook.String()} {
		require.Contains(t, blocks[i].data, part)
	}
	var data []api.Event
	testkit.Eventually(t, "no older transaction is open", func() bool {
		data = th.list(clientStream).Data
		return len(data) == len(all)
	})
	listed, err := json.Marshal(data[len(data)-1])
	require.NoError(t, err)
	require.JSONEq(t, blocks[4].data, string(listed))

	// A reader that resumes from the id of the position event gets all events. The ids are also valid as cursors. Last-Event-ID takes
	// precedence over the parameter `cursor`.
	require.Equal(t, blocks, th.open(clientStream, "Last-Event-ID", start.id).events(all...))
	require.Equal(t, blocks[3:], th.open(clientStream+"?cursor="+blocks[2].id).events(all[3:]...))
	require.Equal(t, blocks[4:], th.open(clientStream+"?cursor="+start.id, "Last-Event-ID", blocks[3].id).events(all[4:]...))
}

// A committed event is held back while an older transaction could still add an earlier event.
func TestHeldEvents(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.Exec(`DELETE FROM events`)
	r := th.open(clientStream)
	th.watched(1)
	release := th.Begin(`SELECT pg_current_xact_id()`)
	th.submitted()
	for note := ""; note == ""; { // a heartbeat may come first
		note = r.block().note
	}
	release()
	r.events("job-created", "job-queued")
}

func TestStreamSurvivesStorage(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = 20 * time.Millisecond })
	id, path := th.submitted()
	r := th.open(path)
	r.events("job-created", "job-queued")
	th.watched(1)
	th.Exec(`ALTER TABLE events RENAME TO gone; ALTER TABLE api_keys RENAME TO gone_keys`)
	th.Changed(backend.ClientA, id)
	for range 3 {
		require.True(t, r.block().comment, "heartbeats continue")
	}
	th.Exec(`ALTER TABLE gone RENAME TO events; ALTER TABLE gone_keys RENAME TO api_keys`)
	th.Move(id, job.Assigned)
	r.events("job-assigned")
}

func TestDeletedJobEndsItsStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	id, path := th.submitted()
	r := th.open(path)
	r.events("job-created", "job-queued")
	th.watched(1)
	th.Exec(`DELETE FROM events WHERE job_id = $1`, id.String())
	th.Exec(`DELETE FROM jobs WHERE job_id = $1`, id.String())
	th.Changed(backend.ClientA, id)
	r.end()
	th.closed(stream.EndOfJob, 1)
}

func TestStreamEndsWithNotificationOfItsKey(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t, func(c *Config, _ *Deps) { c.Heartbeat = time.Hour })
	th.watchKeys()
	id, path := th.submitted()
	r := th.open(path)
	r.events("job-created", "job-queued")
	th.watched(1)
	require.NoError(t, th.Clients.RevokeKey(t.Context(), job.Caller{Admin: true}, backend.ClientA, goodKey[4:16]))
	r.end()
	th.closed(stream.Unauthorized, 1)
	require.Equal(t, 1.0, series(t, th.registry)["auth_failures_total "+string(job.CodeKeyDisabled)])
	require.Contains(t, th.ended(), `"error_code":"`+string(job.CodeKeyDisabled)+`"`)
	require.Contains(t, th.ended(), `"job_id":"`+id.String()+`"`)
}

func TestStreamRefusals(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
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
}

// Events between the first read and the start of the watch are sent, although no notification announces them.
func TestNothingIsLostBeforeTheWatch(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	id, path := th.submitted()
	engine := th.server.events.Engine
	watch := engine.Watch
	engine.Watch = func(client, job job.ID) (<-chan job.Notification, func()) {
		th.emitSilently(id, 1, `{"work_kind":"x"}`)
		return watch(client, job)
	}
	th.open(path).events("job-created", "job-queued", "event-emitted")
	th.Exec(`DELETE FROM events`) // while other tests have open transactions, the stream may also show old events
	th.open(clientStream).events("event-emitted")
}
