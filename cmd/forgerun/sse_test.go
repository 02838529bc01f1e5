package main

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/apitest"
	"github.com/forgerun/forgerun/handlers/docs"
)

type frame struct{ id, event, data string }

func (f frame) text(path string) string { return answer{body: f.data}.text(path) }

// eventStream reads one SSE response. The channel `frames` is closed at the end of the stream.
type eventStream struct {
	t      *testing.T
	path   string
	status int
	header http.Header
	frames chan frame
	cut    context.CancelFunc
	lastID string
}

func documentedFrames(t *testing.T) *apitest.Document {
	t.Helper()
	return apitest.New(t, docs.AsyncAPI)
}

func (u *user) stream(api *proc, path, lastID string, headers ...string) *eventStream {
	u.s.t.Helper()
	ctx, cancel := context.WithCancel(u.s.ctx())
	u.s.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, api.url+path, nil)
	require.NoError(u.s.t, err)
	request.Header.Set("Authorization", "Bearer "+u.key)
	request.Header.Set("Accept", "text/event-stream")
	if lastID != "" {
		headers = append(headers, "Last-Event-ID", lastID)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := u.s.streams.Do(request)
	require.NoError(u.s.t, err)
	e := &eventStream{
		t: u.s.t, path: strings.SplitN(path, "?", 2)[0], status: response.StatusCode, header: response.Header,
		frames: make(chan frame), cut: cancel, lastID: lastID,
	}
	go e.read(ctx, response)
	return e
}

func (e *eventStream) read(ctx context.Context, response *http.Response) {
	defer close(e.frames)
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	var f frame
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "" && f != frame{}:
			select {
			case e.frames <- f:
			case <-ctx.Done():
				return
			}
			f = frame{}
		case name == "id":
			f.id = value
		case name == "event":
			f.event = value
		case name == "data":
			f.data += value
		}
	}
}

// next returns the next frame after checking it against the AsyncAPI document. `ok` is false at the end of the stream.
func (e *eventStream) next() (f frame, ok bool) {
	e.t.Helper()
	select {
	case f, ok = <-e.frames:
		if f.id != "" {
			e.lastID = f.id
		}
		if f.event != "" {
			require.NoError(e.t, documentedFrames(e.t).VerifyFrame(e.path, f.id, f.event, f.data), "%+v", f)
		}
		return f, ok
	case <-time.After(patience):
		require.FailNow(e.t, "no event came")
	}
	return frame{}, false
}

func (e *eventStream) until(event string) []frame {
	e.t.Helper()
	var all []frame
	for {
		f, ok := e.next()
		require.True(e.t, ok, "the stream ended before %s", event)
		all = append(all, f)
		if f.event == event {
			return all
		}
	}
}

func (e *eventStream) rest() (all []frame) {
	e.t.Helper()
	for {
		f, ok := e.next()
		if !ok {
			return all
		}
		all = append(all, f)
	}
}

func frameNames(frames []frame) (names []string) {
	for _, f := range frames {
		if f.event != "" && f.event != "job-progress" {
			names = append(names, f.event)
		}
	}
	return names
}
