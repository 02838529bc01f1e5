package handlers

import (
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

// list reads a page of events.
func (th *streamServer) list(path string, headers ...string) listView[eventView] {
	th.t.Helper()
	r := th.ask("GET", path, append([]string{"Accept", "application/json"}, headers...)...)
	text, err := io.ReadAll(r.in)
	require.NoError(th.t, err)
	require.Equal(th.t, 200, r.StatusCode, string(text))
	bare, _, _ := strings.Cut(path, "?")
	require.NoError(th.t, apitest.New(th.t, docs.OpenAPI).Verify("GET", bare, r.Response, text))
	require.Equal(th.t, "Accept", r.Header.Get("Vary"))
	var list listView[eventView]
	require.NoError(th.t, json.Unmarshal(text, &list))
	require.NotNil(th.t, list.Data, "an empty list is []")
	return list
}

func TestListOfAJobsEvents(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	empty := th.list(jobStream)
	require.Empty(t, empty.Data)
	require.Equal(t, pageView{Limit: query.MaxLimit}, empty.Page)

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

	var walked []eventView
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
	second, foreign := mustID("01890000-0000-7000-8000-000000000002"), mustID("01890000-0000-7000-8000-00000000000f")
	th.history.add(clientA, second)
	th.history.add(clientB, foreign)
	for range 5 {
		for _, id := range []job.ID{jobID, foreign, second} {
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
		require.Equal(t, []job.ID{jobID, second}[i%2], *e.JobID)
	}
	end := *page.Page.NextCursor
	th.history.record(second, job.EventCanceled)
	page = th.list(clientStream + "?cursor=" + end)
	require.Len(t, page.Data, 1, "the client polls on")
	require.NotEqual(t, end, *page.Page.NextCursor)
}

// TestEventCursorsBelongToTheirList changes each byte of cursors, and uses them
// elsewhere.
func TestEventCursorsBelongToTheirList(t *testing.T) {
	t.Parallel()
	th := newStreamServer(t)
	second := mustID("01890000-0000-7000-8000-000000000002")
	th.history.add(clientA, second)
	th.history.record(jobID, allOfAJob...)
	th.history.record(second, allOfAJob...)
	ofJob, ofClient := *th.list(jobStream + "?limit=1").Page.NextCursor, *th.list(clientStream + "?limit=1").Page.NextCursor
	bad := []string{
		clientStream + "?cursor=" + ofJob, jobStream + "?cursor=" + ofClient,
		"/v1/jobs/" + second.String() + "/events?cursor=" + ofJob,
	}
	for path, cursor := range map[string]string{jobStream: ofJob, clientStream: ofClient} {
		for i := range cursor {
			other := "A"
			if cursor[i] == 'A' {
				other = "B"
			}
			bad = append(bad, path+"?cursor="+cursor[:i]+other+cursor[i+1:])
		}
	}
	for _, path := range bad {
		th.ask("GET", path, "Accept", "application/json").problem(job.CodeMalformed)
	}
	th.ask("GET", clientStream+"?cursor="+ofClient, "Accept", "", "Authorization", "Bearer "+otherKey).problem(job.CodeMalformed)
}
