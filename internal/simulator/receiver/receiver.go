// Package receiver plays the webhook receivers of a run of the simulator: it
// verifies each message, writes down that it came, and answers it as well or as
// badly as the scenario wants. What was sent is judged elsewhere.
package receiver

import (
	"context"
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
	// Delivered is called for each try that is not refused: whether it was answered with 2xx.
	Delivered func(ok bool)
	// Keys finds a published key of the service: client.Directory.Key. Without it
	// only the signatures under webhooks' secrets are verified.
	Keys func(keyID string) (ed25519.PublicKey, error)
}

// Receiver is an HTTP server with an address for each receiver of each tenant.
type Receiver struct {
	options  Options
	listener net.Listener
	server   *http.Server
	tries    tries
	closed   context.Context // ended by Close: answers are not held any longer
	close    context.CancelFunc

	mu       sync.Mutex
	active   sync.WaitGroup    // messages being answered; grows only while not closed
	bases    map[string]string // of the public addresses, no slash at the end; "": of receivers without one of their own
	webhooks map[address]webhook
	pending  map[address]bool // its registration is not answered yet
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

	registrationLimit = 5 * time.Second // how long a message waits for the registration of its address
	registrationPause = 5 * time.Millisecond
)

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
	r := &Receiver{options: o, listener: listener, webhooks: map[address]webhook{}, pending: map[address]bool{}, bases: map[string]string{}}
	if err := r.SetURL("", publicURL); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	r.closed, r.close = context.WithCancel(context.Background())
	r.server = &http.Server{
		Handler: r, ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes,
	}
	go func() { _ = r.server.Serve(listener) }() // until Close
	return r, nil
}

// Addr is where it listens: host and port.
func (r *Receiver) Addr() string { return r.listener.Addr().String() }

// Open gives the receiver of that name an address of its own, at a free port of
// the same host, and returns its base URL: failures at one host and port may make a
// service hold back all that it sends there.
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

// SetURL changes the base of a receiver's address, such as to a proxy's, before it is
// registered; "" stands for the receivers without a base of their own.
func (r *Receiver) SetURL(name, baseURL string) error {
	u, err := url.Parse(baseURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is not an address of the receiver: give --receiver-url such as http://192.0.2.7:9000", baseURL)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bases[name] = strings.TrimRight(baseURL, "/")
	return nil
}

// URL is where the service sends messages for the tenant's receiver.
func (r *Receiver) URL(tenant int, name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	base, own := r.bases[name]
	if !own {
		base = r.bases[""]
	}
	return base + "/" + strconv.Itoa(tenant) + "/" + url.PathEscape(name)
}

// Register calls create, which registers the address of the tenant's receiver at the
// service. From then on, signatures under the secret are verified. A service may send
// to the address before its answer is here: such a message waits for the answer.
func (r *Receiver) Register(tenant int, name string, create func(url string) (webhookID, secret string, err error)) error {
	at := address{tenant, name}
	r.mu.Lock()
	r.pending[at] = true
	r.mu.Unlock()
	id, secret, err := create(r.URL(tenant, name))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.webhooks[at] = webhook{id, secret}
	}
	delete(r.pending, at)
	return err
}

// registered gives what is registered at the address, "" for nothing. It waits for the answer to a registration, but not for
// long: a service that waits for this answer would never give its own.
func (r *Receiver) registered(ctx context.Context, at address) webhook {
	for deadline := time.Now().Add(registrationLimit); ; {
		r.mu.Lock()
		w, waits := r.webhooks[at], r.pending[at]
		r.mu.Unlock()
		if !waits || time.Now().After(deadline) || r.hold(ctx, registrationPause) != "" {
			return w
		}
	}
}

// Close ends the server and all answers that are held, and waits until what
// came is written to the history. It may come twice.
func (r *Receiver) Close() {
	r.mu.Lock()
	r.close()
	r.mu.Unlock()
	_ = r.server.Close()
	r.active.Wait()
}
