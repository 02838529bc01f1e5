package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// maxDeliveryBytes bounds what is read of one delivery.
const maxDeliveryBytes = 4 << 20

// receiver is the tour's own webhook receiver. It answers as each kind's script
// says and keeps what it was sent; judging is left to the visit.
type receiver struct {
	url    string // as the service reaches it, without a slash at the end
	server *http.Server

	mu    sync.Mutex
	hooks map[string]*hook // by path
}

// hook is one address of the receiver, for the deliveries of one job.
type hook struct {
	url     string
	replies []reply       // to the tries in turn; the last one to all further ones
	known   chan struct{} // closed when jobID is set

	mu    sync.Mutex
	jobID string
	seen  []message
	open  int // requests that are not answered yet
}

// reply is what the receiver does with one try.
type reply struct {
	status int           // 0: it is left unanswered until the sender gives up
	after  time.Duration // how late it is answered
}

// message is one try as it was received.
type message struct {
	at     time.Time
	method string
	header http.Header
	body   []byte
	reply  reply
}

func newReceiver(url string) *receiver {
	return &receiver{url: strings.TrimRight(url, "/"), hooks: map[string]*hook{}}
}

// listenReceiver starts a receiver at addr. The service reaches it at rawURL;
// without one, at the address itself.
func listenReceiver(addr, rawURL string) (*receiver, error) {
	if rawURL != "" {
		u, err := url.Parse(rawURL)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("%q is not an address of the receiver: give --receiver-url such as http://192.0.2.7:9000", rawURL)
		}
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the webhook receiver cannot listen (choose another --receiver-addr): %w", err)
	}
	if rawURL == "" {
		if a, ok := listener.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
			listener.Close()
			return nil, fmt.Errorf("with --receiver-addr %s, say with --receiver-url how the service reaches this machine", addr)
		}
		rawURL = "http://" + listener.Addr().String()
	}
	r := newReceiver(rawURL)
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(listener) }() // until close
	return r, nil
}

// close ends the receiver and every try that is still unanswered.
func (r *receiver) close() {
	if r.server != nil {
		r.server.Close()
	}
}

// hook opens an address of its own, for a kind.
func (r *receiver) hook(kind string, replies ...reply) *hook {
	path := "/" + strings.ToLower(kind) + "/" + uuid.NewString()
	h := &hook{url: r.url + path, replies: replies, known: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hooks[path] = h
	return h
}

// find gives the hook at a path. A proxy in front of the receiver may have cut
// the path of its URL off, or not.
func (r *receiver) find(path string) *hook {
	r.mu.Lock()
	defer r.mu.Unlock()
	for end, h := range r.hooks {
		if strings.HasSuffix(path, end) {
			return h
		}
	}
	return nil
}

// ServeHTTP receives one try. A delivery may be quicker than the answer to the
// submission of its job: it waits until the job's id is known.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := r.find(req.URL.Path)
	if h == nil {
		http.NotFound(w, req)
		return
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, maxDeliveryBytes))
	if err != nil {
		return // the sender is gone
	}
	select {
	case <-h.known:
	case <-req.Context().Done():
		return
	}
	m := message{at: time.Now(), method: req.Method, header: req.Header.Clone(), body: body}
	if h.foreign(m) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	answer := h.receive(m)
	defer h.answered()
	if answer.status == 0 {
		<-req.Context().Done()
		return
	}
	if sleep(req.Context(), answer.after) == nil {
		w.WriteHeader(answer.status)
	}
}

// expect tells the hook whose deliveries it is for.
func (h *hook) expect(jobID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobID = jobID
	close(h.known)
}

// foreign reports whether the message is of another job: a subscription gets
// the events of all jobs of its client.
func (h *hook) foreign(m message) bool {
	id := m.document().JobID
	h.mu.Lock()
	defer h.mu.Unlock()
	return id != "" && id != h.jobID
}

// receive keeps the message and tells how to answer it.
func (h *hook) receive(m message) reply {
	h.mu.Lock()
	defer h.mu.Unlock()
	m.reply = h.replies[min(len(h.seen), len(h.replies)-1)]
	h.seen = append(h.seen, m)
	h.open++
	return m.reply
}

func (h *hook) answered() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
}

// received gives what came so far, and whether a try is being answered.
func (h *hook) received() (seen []message, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen), h.open > 0
}

// document is the part of a delivery's body that matters here.
func (m message) document() (d deliveredView) {
	_ = json.Unmarshal(m.body, &d) // what is not there is judged as such
	return d
}

// errUnreachable is wrapped when the service cannot call the receiver, so that
// nothing can be judged.
var errUnreachable = errors.New("the service cannot deliver to the receiver")

// unreachable says how to change that.
func (r *receiver) unreachable(why string) error {
	return fmt.Errorf("%w at %s (%s): set FORGERUN_WEBHOOK_ALLOW_PRIVATE=true at the service if that is a private or loopback address, "+
		"or give one that it can reach with --receiver-addr and --receiver-url", errUnreachable, r.url, why)
}
