package disturb

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func TestFailuresWithinJobsAreChanged(t *testing.T) {
	t.Parallel()
	job := `{"state":"FAILED","failure":{"type":"https://x.example/a","title":"No","status":500,"jobStatus":"FAILED"}}`
	require.JSONEq(t, `{"state":"PONDERING","language":"de",
		"failure":{"type":"urn:odd","title":"Der Auftrag ist nicht gelungen","status":500,"jobStatus":"PONDERING","language":"de"}}`,
		string(testbed.Shape.Rewrite(&fault.Effect{JobStatus: "PONDERING", ProblemType: "urn:odd", Language: "de"}, []byte(job))))
}

func TestResultsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, changes := range map[string]bool{"Repr-Digest": false, "X-Other": true} {
		var c fasthttp.RequestCtx
		c.Response.Header.SetContentType("application/json")
		c.Response.Header.Set(name, "sha-256=:x:")
		c.Response.SetBodyString(`{"a":1}`)
		Response(t.Context(), &fault.Effect{Extensions: true}, &c, nil)
		require.Equal(t, changes, string(c.Response.Body()) != `{"a":1}`, name)
	}
}

func received() (net.Conn, <-chan []byte) {
	ours, theirs := net.Pipe()
	got := make(chan []byte)
	go func() {
		var all bytes.Buffer
		_, _ = all.ReadFrom(theirs)
		got <- all.Bytes()
	}()
	return ours, got
}

func TestRecordsOfStreams(t *testing.T) {
	t.Parallel()
	ours, got := received()
	var x verdict.Exchange
	done := make(chan struct{})
	s := NewConn(ours, &fault.Effect{HalfEventAfter: new(1)}, false, &x, func() { close(done) })
	for _, block := range []string{"HTTP/1.1 200 OK\n\n", "retry: 1234\n\n", ":\n\n"} {
		_, err := s.Write([]byte(block))
		require.NoError(t, err)
	}
	_, err := s.Write([]byte("id: 1\nevent: a\ndata: {}\n\nid: 2\nevent: a\ndata: {\"a\": \"some words\"}\n\n"))
	require.ErrorIs(t, err, net.ErrClosed)
	<-done
	require.Contains(t, string(<-got), "id: 2\nevent")
	require.LessOrEqual(t, x.Stream.Late, 1)
	x.Stream.Late = 0 // depends on how long the writes took
	require.Equal(t, verdict.Part{Events: 1, IDs: []string{"1"}, Retry: 1234, Half: "2", Cut: true}, *x.Stream)
}

// hungUp simulates a client that reads the data and hangs up before Write returns.
type hungUp struct {
	net.Conn
	conn *Conn
}

func (h *hungUp) Write(b []byte) (int, error) {
	err := h.conn.Close()
	synctest.Wait() // until all other goroutines block
	return len(b), err
}

func (h *hungUp) Close() error { return nil }

func TestLastEventBeforeAHangUpIsRecorded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "01890000-0000-7000-8000-000000000001"
		var x verdict.Exchange
		done := make(chan struct{})
		h := &hungUp{}
		h.conn = NewConn(h, nil, false, &x, func() { close(done) })
		_, err := h.conn.Write([]byte(`data: {"job_id": "` + id + `", "state": "SUCCEEDED"}` + "\n\n"))
		require.NoError(t, err)
		<-done
		require.Equal(t, []string{id}, x.Final)
		require.Equal(t, 1, x.Stream.Events)
	})
}

func TestLostStreams(t *testing.T) {
	t.Parallel()
	ours, got := received()
	var x verdict.Exchange
	done := make(chan struct{})
	s := NewConn(ours, (&fault.Effect{Close: fault.AfterCommit}).OnStream(), false, &x, func() { close(done) })
	_, err := s.Write([]byte("HTTP/1.1 200 OK\r\n\r\nid: 1\ndata: {}\n\n"))
	require.ErrorIs(t, err, net.ErrClosed)
	<-done
	require.Empty(t, <-got)
	require.Equal(t, verdict.Part{Cut: true}, *x.Stream)
}
