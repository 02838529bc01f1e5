// Package receiver runs the webhook receivers of a simulator run. It verifies each message, adds it to the history, and responds as the
// scenario says. Package judge checks the recorded messages.
package receiver

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Options configure a Receiver. Names, History and Keys are required.
type Options struct {
	Seed    uint64
	Names   map[string][]Answer // maps the name of a receiver to its possible responses; without responses, the receiver returns 204
	History interface{ Add(history.Fact) }

	Delivered func(ok bool)                              // called for each valid message; `ok` is true if the response was 2xx
	Keys      func(id string) (ed25519.PublicKey, error) // returns a public key of the service
	Proxy     func(address string) (string, error)       // returns the address to register for a listener; nil: `address` itself
}

// Receiver is an HTTP server. Each webhook receiver of each tenant has its own address.
type Receiver struct {
	options Options
	server  *http.Server
	bases   map[string]string // public base URL of each receiver by name, without a trailing slash; the key "" means all receivers
	closed  context.Context   // canceled by Close, to end delayed responses
	close   context.CancelFunc

	mu       sync.Mutex
	active   sync.WaitGroup // counts messages without a response; Add needs mu, and must not follow Close
	webhooks map[address]*webhook
	tries    map[string]int // maps message ids to the number of tries so far
}

type address struct {
	tenant int
	name   string
}

type webhook struct {
	id, secret string
	known      chan struct{} // closed when id and secret are set, after the response to the registration
}

const (
	maxBodyBytes      = 4 << 20
	maxHeaderBytes    = 64 << 10
	readTimeout       = 30 * time.Second // time limit for reading a request
	idleTimeout       = 2 * time.Minute
	registrationLimit = 5 * time.Second // how long a message waits until its receiver is registered
	rememberedTries   = 1_000_000
)

// Listen starts all receivers at `addr`. The service sends messages to `publicURL` or, if this is "", to `addr`. With port 0 and no public
// URL, each receiver gets its own port. After failures, a service may delay all messages to a host and port. Because of the separate ports,
// a failing receiver does not delay messages to other receivers.
func Listen(addr, publicURL string, o Options) (*Receiver, error) {
	r := &Receiver{options: o, webhooks: map[address]*webhook{}, bases: map[string]string{}, tries: map[string]int{}}
	r.closed, r.close = context.WithCancel(context.Background())
	r.server = &http.Server{Handler: r, ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaderBytes}
	names := []string{""}
	if publicURL == "" && strings.HasSuffix(addr, ":0") {
		names = slices.Sorted(maps.Keys(o.Names))
	}
	for _, name := range names {
		base, err := r.open(addr, publicURL)
		if err == nil && o.Proxy != nil {
			base, err = o.Proxy(base)
		}
		if err != nil {
			r.Close()
			return nil, err
		}
		r.bases[name] = strings.TrimRight(base, "/")
	}
	return r, nil
}

func (r *Receiver) open(addr, publicURL string) (string, error) {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return "", fmt.Errorf("the webhook receiver cannot listen (choose another --receiver-addr): %w", err)
	}
	go func() { _ = r.server.Serve(listener) }()
	if a, ok := listener.Addr().(*net.TCPAddr); publicURL == "" && ok && a.IP.IsUnspecified() {
		return "", fmt.Errorf("--receiver-addr %s needs --receiver-url: the address at which the service reaches this machine", addr)
	}
	publicURL = cmp.Or(publicURL, "http://"+listener.Addr().String())
	u, err := url.Parse(publicURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("--receiver-url %q must be a URL such as http://192.0.2.7:9000", publicURL)
	}
	return publicURL, nil
}

// URL returns the URL to which the service sends messages for the tenant's receiver.
func (r *Receiver) URL(tenant int, name string) string {
	base, own := r.bases[name]
	if !own {
		base = r.bases[""]
	}
	return base + "/" + strconv.Itoa(tenant) + "/" + url.PathEscape(name)
}

// Register calls `create` to register the receiver's URL at the service. Messages that arrive before the response to the registration wait
// for that response.
func (r *Receiver) Register(tenant int, name string, create func(url string) (webhookID, secret string, err error)) (err error) {
	w := &webhook{known: make(chan struct{})}
	defer close(w.known)
	r.mu.Lock()
	r.webhooks[address{tenant, name}] = w
	r.mu.Unlock()
	w.id, w.secret, err = create(r.URL(tenant, name))
	return err
}

// registered returns the id and secret of the webhook at an address, or "" if there is none. It waits for a registration in progress, but
// at most registrationLimit. A longer wait could deadlock, because a service may wait for the receiver's response before it responds to the
// registration.
func (r *Receiver) registered(ctx context.Context, at address) (id, secret string) {
	r.mu.Lock()
	w := r.webhooks[at]
	r.mu.Unlock()
	if w == nil {
		return "", ""
	}
	select {
	case <-w.known:
		return w.id, w.secret
	case <-time.After(registrationLimit):
	case <-ctx.Done():
	case <-r.closed.Done():
	}
	return "", ""
}

func (r *Receiver) count(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tries) == rememberedTries {
		clear(r.tries) // limits memory; wrong numbers only change which responses are chosen
	}
	r.tries[id]++
	return r.tries[id]
}

// Close ends the server and delayed responses. It returns when all messages are in the history.
func (r *Receiver) Close() {
	r.mu.Lock()
	r.close()
	r.mu.Unlock()
	_ = r.server.Close()
	r.active.Wait()
}
