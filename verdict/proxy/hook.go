package proxy

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/redact"
	"github.com/forgerun/forgerun/verdict/wire"
)

const (
	maxDelivery  = 8 << 20
	hookTimeout  = 30 * time.Second
	extraTimeout = fault.ExtraTimeout
)

// Hook is a handler that the target calls in place of the client's receiver. It passes deliveries on, applies the rules for deliveries, and
// records the responses.
type Hook struct {
	proxy    *Proxy
	receiver *url.URL
	secret   []byte // secret for signatures; nil if unknown
	open     bool   // the listener is not on loopback, so any Host is accepted
	client   http.Client
}

// Hook returns a hook in front of a receiver. With the signing secret of the target, the hook can also sign changed deliveries, such as
// outdated or padded ones.
func (p *Proxy) Hook(receiver *url.URL, secret string) *Hook {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableCompression = true
	return &Hook{proxy: p, receiver: receiver, secret: []byte(secret), client: http.Client{
		CheckRedirect: unfollowed, Transport: transport,
	}}
}

// Listen opens the socket for deliveries.
func (h *Hook) Listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	h.open = err == nil && beyondLoopback(l)
	return l, err
}

type delivery struct {
	method string
	url    string
	header http.Header
	body   []byte
	in     *session
	verdict.Attempt
}

// ServeHTTP handles a delivery.
func (h *Hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.open && h.proxy.misdirected(w, r) || foreign(w, r) {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxDelivery))
	if err != nil {
		writeProblem(w, http.StatusRequestEntityTooLarge, "A delivery can have at most 8 MiB.")
		return
	}
	to := *h.receiver
	to.RawQuery = cmp.Or(r.URL.RawQuery, to.RawQuery)
	d := &delivery{method: r.Method, url: to.String(), header: r.Header.Clone(), body: body}
	for _, name := range []string{"Connection", "Keep-Alive", "Te", "Trailer", "Upgrade", "Expect"} { // hop-by-hop fields
		d.header.Del(name)
	}
	if _, said := d.header["User-Agent"]; !said {
		d.header["User-Agent"] = []string{""} // otherwise net/http adds its own
	}
	d.At = time.Now().UTC()
	if d.Unsigned = !h.validlySigned(d); d.Unsigned {
		h.proxy.log.Warn("the signature of a delivery does not match FORGERUN_WEBHOOK_SECRET: forwarding the delivery unchanged")
	}
	document := api.Decode(body)
	d.in = h.proxy.sessions.sessionOf(document)
	e := h.proxy.sessions.fault(d.in, fault.Delivery, nil, func() string {
		return fault.Subject(d.method, d.url, []byte(d.header.Get("Webhook-Id")), body)
	})
	h.proxy.sessions.delivered(d, document)
	if e == nil {
		e = &fault.Effect{}
	}
	if e.Drop {
		d.Error = "CONNECTION_LOST"
		h.proxy.sessions.sent(d, e, 0)
		h.proxy.sessions.attempted(d)
		panic(http.ErrAbortHandler)
	}
	if !wait(r.Context(), time.Duration(e.Delay)) {
		return
	}
	h.deliver(r.Context(), w, d, e)
}

func (h *Hook) deliver(ctx context.Context, w http.ResponseWriter, d *delivery, e *fault.Effect) {
	forged, canForge := h.forged(d, e.Tamper)
	forge := func() {
		if canForge {
			h.proxy.sessions.sent(d, &fault.Effect{Tamper: e.Tamper}, h.extra(ctx, forged))
		}
	}
	forge()
	seen := h.applyEffect(d, e)
	d.At = time.Now().UTC()
	status, header, body, err := h.send(ctx, d, hookTimeout)
	d.Took = time.Since(d.At)
	if err != nil {
		d.Error = "NO_ANSWER"
		d.GaveUp = d.Took >= hookTimeout
		h.proxy.sessions.attempted(d)
		writeProblem(w, http.StatusBadGateway, "The receiver "+redact.URL(h.receiver.String())+" did not answer.")
		return
	}
	d.Status = status
	ok := d.Status >= 200 && d.Status <= 299
	if !ok {
		d.Error = "STATUS"
	}
	h.proxy.sessions.attempted(d)
	if seen.Rewrites() {
		h.proxy.sessions.sent(d, seen, d.Status)
	}
	if ok {
		forge()
		for range e.Repeat {
			h.proxy.sessions.sent(d, &fault.Effect{Repeat: 1}, h.extra(ctx, d))
		}
	}
	maps.Copy(w.Header(), header)
	w.Header().Del("Connection")
	unchanged(w.Header(), status)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// extra sends an additional request and returns the status of the response, or 0 if there was none.
func (h *Hook) extra(ctx context.Context, d *delivery) int {
	status, _, _, err := h.send(ctx, d, extraTimeout)
	if err != nil {
		return 0
	}
	return status
}

func (h *Hook) send(ctx context.Context, d *delivery, timeout time.Duration) (status int, header http.Header, body []byte, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, d.method, d.url, bytes.NewReader(d.body))
	if err != nil {
		return 0, nil, nil, err
	}
	r.Header = d.header
	res, err := h.client.Do(r)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxDocument))
	return res.StatusCode, res.Header, body, err
}

// sessionOf returns the latest labeled session with a job that the document names, or nil.
func (s *sessions) sessionOf(document any) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slices.Backward(s.all) {
		if n.Label == "" {
			continue
		}
		var x verdict.Exchange
		if s.show(n, document, &x); len(x.Final)+len(x.Shown) > 0 {
			return n
		}
	}
	return nil
}

func (s *sessions) delivered(d *delivery, document any) {
	m := &api.Message{URL: &url.URL{}, Header: d.header, Body: document}
	d.DeliveryID = redact.Keep(cmp.Or(m.Text("header:Webhook-Id", "header:X-GitHub-Delivery", "/id"), wire.Sum(d.body)))
	d.Event = redact.Keep(m.Text("/type", "/event", "header:X-GitHub-Event", "header:Ce-Type"))
	s.within(d.in, func(n *session) {
		tries := n.tries[d.DeliveryID]
		if tries == 0 && len(n.tries) < verdict.MaxExchanges && n.spare() {
			n.bytes += perText + len(d.DeliveryID)
			n.tries[d.DeliveryID] = 1
		} else if tries > 0 {
			n.tries[d.DeliveryID]++
		}
		d.Number = n.tries[d.DeliveryID]
		var x verdict.Exchange
		s.show(n, document, &x)
		switch {
		case len(x.Final) > 0:
			if d.JobID, d.Final = x.Final[0], !d.Unsigned; d.Final { // an unsigned delivery does not prove that the job ended
				n.jobs[d.JobID].setState(api.State{Known: true, Final: true, Name: "final"}, d.At)
			}
		case len(x.Shown) > 0:
			d.JobID = x.Shown[0]
		}
	})
}

func (s *sessions) attempted(d *delivery) {
	s.within(d.in, func(n *session) {
		n.Recorded++
		if len(n.attempts) < verdict.MaxExchanges && n.spare() {
			n.bytes += perAttempt + len(d.Event)
			n.attempts = append(n.attempts, d.Attempt)
		}
	})
}

// sent records a request to the receiver that a fault added, changed or withheld.
func (s *sessions) sent(d *delivery, e *fault.Effect, status int) {
	now := time.Now().UTC()
	s.record(d.in, &verdict.Exchange{
		Start: d.At, End: now, Method: http.MethodPost, Role: verdict.Delivery, Operation: fault.Delivery, Status: status, Fault: e,
		Delivery: d.DeliveryID, Number: d.Number, Event: d.Event,
	})
}
