package handlers

import (
	"encoding/json"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

// list reads a page of events.
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

func TestListOfAJobsEvents(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	empty := th.list(jobStream)
	require.Empty(t, empty.Data)
	require.Equal(t, query.Info{Limit: query.MaxLimit}, empty.Page)

	th.history.record(jobID, append(allOfAJob, job.EventFailed, job.EventRetriesExhausted, job.EventRetried)...)
	all := th.list(jobStream)
	require.Len(t, all.Data, 7)
	require.Nil(t, all.Page.NextCursor)
	for i, e := range all.Data {
		require.Equal(t, i+1, *e.Seq)
		require.Equal(t, jobID, *e.JobID)
	}
	require.Equal(t, job.Failed, *all.Data[4].NextState)
	require.Nil(t, all.Data[5].NextState, "an annotation has no states")
	require.Equal(t, 2, *all.Data[6].Attempt)

	var walked []api.Event
	for path := jobStream + "?limit=3"; ; {
		page := th.list(path)
		require.Equal(t, 3, page.Page.Limit)
		walked = append(walked, page.Data...)
		if page.Page.NextCursor == nil {
			break
		}
		path = jobStream + "?limit=3&cursor=" + url.QueryEscape(*page.Page.NextCursor)
	}
	require.Equal(t, all.Data, walked)
}

func TestListOfAClientsEvents(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	require.Nil(t, th.list(clientStream).Page.NextCursor, "nothing to go on from")
	for range 5 {
		for _, id := range []job.ID{jobID, foreignID, secondID} {
			th.history.record(id, job.EventEmitted)
		}
	}
	page := th.list(clientStream + "?limit=4")
	seen := page.Data
	for len(page.Data) > 0 {
		page = th.list(clientStream + "?limit=4&cursor=" + *page.Page.NextCursor)
		seen = append(seen, page.Data...)
	}
	require.Len(t, seen, 10)
	for i, e := range seen {
		require.Equal(t, []job.ID{jobID, secondID}[i%2], *e.JobID)
	}
	end := *page.Page.NextCursor
	th.history.record(secondID, job.EventCanceled)
	page = th.list(clientStream + "?cursor=" + end)
	require.Len(t, page.Data, 1, "the client polls on")
	require.NotEqual(t, end, *page.Page.NextCursor)
}

// Promise: patterns Server-Sent Events
func TestProgressOnAStream(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, allOfAJob...)
	th.history.progress(jobID, 1, 10)
	r := th.open(jobStream)
	r.events(allFrames...)
	require.Equal(t, 10, r.next().percentage(t), "what is known already")
	th.history.watched(t, 1)
	for _, p := range []int{30, 20, 30, 40} {
		th.history.progress(jobID, 1, p)
	}
	last := 10
	for last < 40 {
		p := r.next().percentage(t)
		require.Greater(t, p, last, "never back")
		last = p
	}
	th.history.progress(jobID, 1, 60)
	th.history.record(jobID, job.EventSucceeded)
	b := r.next()
	if b.percentage(t) == 60 {
		b = r.next()
	}
	require.Equal(t, 100, b.percentage(t))
	require.JSONEq(t,
		`{"job_id":"`+jobID.String()+`","attempt":1,"progress":{"percentage":100,"phase":"DONE","steps_completed":100,"steps_total":100,
		"items_processed":7,"items_total":7,"updated_at":"2030-01-31T12:00:00.127456Z"}}`, b.data)
	r.events("job-succeeded")
	r.end()
}

// A stream that begins in the middle of an attempt shows its progress too, and
// the last that was heard comes before a failure.
func TestProgressAfterResuming(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	th.history.record(jobID, allOfAJob...)
	th.history.progress(jobID, 1, 10)
	r := th.open(jobStream, "Last-Event-ID", "4")
	require.Equal(t, 10, r.next().percentage(t))
	th.history.change(func() { // progress and event at once, as the hub merges them
		h := th.history
		h.append(jobID, job.EventFailed)
		p := &job.Progress{Percentage: 70, UpdatedAt: now}
		h.publish(job.Notification{ClientID: clientA, JobID: jobID, Attempt: 1, Progress: p, Ended: true})
	})
	require.Equal(t, 70, r.next().percentage(t))
	r.events("job-failed")
	r.end()
}

func TestProgressOfAttempts(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	r := th.begun()
	th.history.progress(jobID, 1, 50)
	require.Equal(t, 50, r.next().percentage(t))
	th.history.record(jobID, job.EventFailed, job.EventRetried)
	r.events("job-failed", "job-retried")
	th.history.progress(jobID, 1, 80) // late
	th.history.progress(jobID, 2, 5)  // early: the event is not there yet
	th.history.record(jobID, job.EventAssigned, job.EventRunning)
	r.events("job-assigned", "job-running")
	require.Equal(t, 5, r.next().percentage(t), "begins anew")
	th.history.record(jobID, job.EventCanceled)
	r.events("job-canceled")
	r.end()
}

// Without any progress shown, none is made up; and the client's stream shows none.
func TestNoProgress(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	all := th.open(clientStream)
	th.history.watched(t, 1)
	r := th.begun()
	th.history.record(jobID, job.EventSucceeded)
	r.events("job-succeeded")
	r.end()
	th.history.record(secondID, allOfAJob...)
	th.history.progress(secondID, 1, 10)
	th.history.record(secondID, job.EventCanceled)
	all.events(slices.Concat(allFrames, []string{"job-succeeded"}, allFrames, []string{"job-canceled"})...)
}

// The last progress may be sent while the end of the attempt is being read.
func TestLastProgressComesBeforeTheEnd(t *testing.T) {
	t.Parallel()
	var ending atomic.Bool
	th := newStreamServer(t)
	th.history.beforeRead = func() {
		if ending.Swap(false) {
			th.history.progress(jobID, 1, 90)
			th.history.change(func() { th.history.append(jobID, job.EventCanceled) })
		}
	}
	r := th.begun()
	th.history.progress(jobID, 1, 20)
	require.Equal(t, 20, r.next().percentage(t))
	ending.Store(true)
	th.history.record(jobID, job.EventEmitted)
	r.events("event-emitted")
	require.Equal(t, 90, r.next().percentage(t))
	r.events("job-canceled")
	r.end()
}
