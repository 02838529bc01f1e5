package experiments

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// ServeNothing is the process that answers as a service would that accepts every
// job, and ends it at once for the reader of its event stream.
func ServeNothing(context.Context, []string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	n := nothing{ended: make(chan string, 1000)}
	server := &fasthttp.Server{NoDefaultDate: true, Handler: n.handle}
	return server.Serve(listener)
}

type nothing struct {
	jobs     atomic.Int64
	streamed atomic.Bool
	ended    chan string
}

func (n *nothing) handle(r *fasthttp.RequestCtx) {
	r.SetContentType("application/json")
	r.SetStatusCode(fasthttp.StatusCreated)
	switch path := string(r.Path()); {
	case path == "/v1/clients":
		r.SetBodyString(`{"client_id":"3b241101-e2bb-4255-8caf-4136c566a962"}`)
	case strings.HasSuffix(path, "/keys"):
		r.SetBodyString(`{"api_key":"frk_key_secret","key_id":"key","created_at":"2030-01-01T00:00:00.000000Z",` +
			`"expires_at":"2031-01-01T00:00:00.000000Z"}`)
	case path == "/bare":
		r.SetStatusCode(fasthttp.StatusAccepted)
	case path == "/v1/events":
		n.streamed.Store(true)
		r.SetStatusCode(fasthttp.StatusOK)
		r.SetContentType("text/event-stream")
		r.SetBodyStreamWriter(func(w *bufio.Writer) { streamEnds(w, n.ended) })
	default:
		id := fmt.Sprintf("0190a1b2-c3d4-7000-8000-%012x", n.jobs.Add(1))
		r.SetStatusCode(fasthttp.StatusAccepted)
		r.Response.Header.Set("X-Request-Id", "0190a1b2-c3d4-7000-8000-0000000000e5")
		r.SetBodyString(`{"job_id":"` + id + `","state":"QUEUED","created_at":"2030-01-01T00:00:00.000000Z"}`)
		if n.streamed.Load() {
			n.ended <- id
		}
	}
}

// streamEnds writes the five events of each job.
func streamEnds(w *bufio.Writer, ended <-chan string) {
	_, _ = w.WriteString("id: 0\ndata:\n\n")
	_ = w.Flush() // a lost connection is seen below
	event := 0
	write := func(name, data string) {
		event++
		_, _ = fmt.Fprintf(w, "id: %d\nevent: job-%s\ndata: %s\n\n", event, name, data)
	}
	for id := range ended {
		prev := "null"
		for seq, state := range []string{"CREATED", "QUEUED", "ASSIGNED", "RUNNING"} {
			name := strings.ToLower(state)
			write(name, fmt.Sprintf(`{"event_id":"0190a1b2-c3d4-7000-8000-0000000000e5","seq":%d,"job_id":%q,"event_name":"job.%s",`+
				`"prev_state":%s,"next_state":%q,"attempt":1,"timestamp":"2030-01-01T00:00:00.000000Z","data":{}}`, seq+1, id, name, prev, state))
			prev = strconv.Quote(state)
		}
		write("succeeded", fmt.Sprintf(`{"jobId":%q,"jobStatus":"COMPLETED","attempt":1,"completedAt":"2030-01-01T00:00:00.000000Z"}`, id))
		if len(ended) == 0 && w.Flush() != nil {
			return
		}
	}
}
