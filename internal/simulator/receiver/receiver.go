package receiver

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Options are what a Receiver needs to know. Only Names and History must be
// given.
type Options struct {
	Seed    uint64
	Names   map[string][]Answer // the receivers of each tenant; without answers each try gets 204
	History interface{ Add(history.Fact) }
	// Choose says how a try is answered that is not strange, counted from 1, of a
	// message about the ticket. nil: Names are drawn from.
	Choose func(name string, ticket int64, try int) Answer
	// Delivered is called for each try that is not strange: when it was answered,
	// and whether with 2xx.
	Delivered func(at time.Time, ok bool)
	// Owner returns whose job it is, as far as that is known yet: a delivery may
	// come before the answer to the job's submission.
	Owner func(jobID string) (tenant int, known bool)
	// Keys finds a published key of the service: client.Directory.Key. Without it
	// only the signatures under webhooks' secrets are verified.
	Keys func(keyID string) (ed25519.PublicKey, error)
}

// Receiver is an HTTP server with an address for each receiver of each tenant.
type Receiver struct {
	options  Options
	listener net.Listener
	server   *http.Server
	closing  chan struct{} // closed by Close: nobody waits any longer
	tries    tries

	mu       sync.Mutex
	closed   bool
	active   sync.WaitGroup    // messages being answered; grows only while not closed
	base     string            // of the public addresses, no slash at the end
	bases    map[string]string // of receivers with an address of their own, by name
	webhooks map[address]webhook
}

// address is a receiver of a tenant.
type address struct {
	tenant int
	name   string
}

// webhook is what was registered for an address.
type webhook struct{ id, secret string }

// Bounds of requests.
const (
	maxBodyBytes   = 4 << 20
	maxHeaderBytes = 64 << 10
	readTimeout    = 30 * time.Second // of a request; an answer may take any time
	idleTimeout    = 2 * time.Minute  // of a connection between requests
)

// New makes a receiver that does not listen by itself: it is a handler of requests
// to publicURL.
func New(publicURL string, o Options) (*Receiver, error) {
	r := &Receiver{options: o, closing: make(chan struct{}), webhooks: map[address]webhook{}, bases: map[string]string{}}
	r.server = &http.Server{
		Handler: r, ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	return r, r.SetURL("", publicURL)
}

// Listen starts a receiver at addr, such as 127.0.0.1:0. The service reaches it
// at publicURL, or with "" at the address itself.
func Listen(addr, publicURL string, o Options) (*Receiver, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the webhook receiver cannot listen (choose another --receiver-addr): %w", err)
	}
	if publicURL == "" {
		if a, ok := listener.Addr().(*net.TCPAddr); ok && a.IP.IsUnspecified() {
			err := fmt.Errorf("with --receiver-addr %s, say with --receiver-url how the service reaches this machine", addr)
			return nil, errors.Join(err, listener.Close())
		}
		publicURL = "http://" + listener.Addr().String()
	}
	r, err := New(publicURL, o)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	r.listener = listener
	go func() { _ = r.server.Serve(listener) }() // until Close
	return r, nil
}

// Addr is where it listens: host and port.
func (r *Receiver) Addr() string { return r.listener.Addr().String() }

// Open gives the receiver of that name an address of its own, at a free port of
// the same host, and returns its base URL. A service may hold all that it sends to
// one host and port back when some of it fails; receivers with ports of their own
// are unharmed by each other.
func (r *Receiver) Open(name string) (baseURL string, err error) {
	host, _, err := net.SplitHostPort(r.Addr())
	if err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("the webhook receiver cannot listen: %w", err)
	}
	go func() { _ = r.server.Serve(listener) }() // until Close
	baseURL = "http://" + listener.Addr().String()
	return baseURL, r.SetURL(name, baseURL)
}

// SetURL changes the base of the addresses that URL gives for a receiver, such as
// to that of a proxy; "" stands for those without one of their own. It is for
// before they are registered: messages are verified under the present one.
func (r *Receiver) SetURL(name, baseURL string) error {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an address of the receiver: give --receiver-url such as http://192.0.2.7:9000", baseURL)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == "" {
		r.base = strings.TrimRight(baseURL, "/")
	} else {
		r.bases[name] = strings.TrimRight(baseURL, "/")
	}
	return nil
}

// Base is the public address of the receivers without one of their own.
func (r *Receiver) Base() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.base
}

// URL is where the service sends messages for the tenant's receiver.
func (r *Receiver) URL(tenant int, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	base, own := r.bases[name]
	if !own {
		base = r.base
	}
	return base + "/" + strconv.Itoa(tenant) + "/" + url.PathEscape(name)
}

// SetWebhook sets what the registration of the tenant's receiver was answered.
// From then on, signatures under the secret are verified.
func (r *Receiver) SetWebhook(tenant int, name, webhookID, secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.webhooks[address{tenant, name}] = webhook{webhookID, secret}
}

func (r *Receiver) webhook(a address) webhook {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.webhooks[a]
}

// Close ends the server and all answers that are held, and waits until what
// came is written to the history. It may come twice.
func (r *Receiver) Close() {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.closing)
	}
	r.mu.Unlock()
	_ = r.server.Close()
	r.active.Wait()
}

// begin counts a message in, unless the receiver is closed.
func (r *Receiver) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.active.Add(1)
	}
	return !r.closed
}
