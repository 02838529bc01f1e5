package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	forgerun "github.com/forgerun/forgerun/client"
)

const (
	requestTimeout = 30 * time.Second
	maxAnswerBytes = 8 << 20
	busyWaitCap    = 15 * time.Second
	userAgent      = "forgerun-simulator"
)

// client speaks HTTP to one service as one of its clients. It shows answers as
// they came, so that their exact form can be judged: the client library would
// forgive what the tour must not.
type client struct {
	base *url.URL // without /v1 and without a slash at the end
	key  string
	http *http.Client
	keys *forgerun.Directory // with which the service signs webhooks
	// How long one call keeps trying a service that does not answer, and one
	// that answers that it is busy.
	awayPatience, busyPatience time.Duration
}

// answer is a whole response.
type answer struct {
	request string // method and path, for messages
	status  int
	header  http.Header
	body    []byte
}

// errAway is wrapped by errors of calls that got no answer at all.
var errAway = errors.New("the service does not answer")

// newClient reads the base URL, with or without /v1 at its end.
func newClient(rawURL, key string, transport http.RoundTripper) (*client, error) {
	u, err := url.Parse(rawURL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not the address of a service: give --url such as http://127.0.0.1:8080", rawURL)
	}
	public, err := forgerun.New(forgerun.Config{URL: rawURL, HTTP: &http.Client{Transport: transport}, UserAgent: userAgent})
	if err != nil {
		return nil, err
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return &client{
		base: u, key: key, keys: public.Directory(), awayPatience: 10 * time.Second, busyPatience: 90 * time.Second,
		http: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the API never redirects
		}},
	}, nil
}

// newTransport keeps enough connections open for all kinds at once.
func newTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}

// do sends a request until it is answered by more than "away" or "busy". Every
// call of the tour may be repeated: submissions carry an idempotency key, and
// cancel and retry are safe to repeat (section 7).
func (c *client) do(ctx context.Context, method, path string, body any, header http.Header) (*answer, error) {
	began := time.Now()
	for {
		a, err := c.once(ctx, method, path, body, header)
		patience, wait := c.busyPatience, 250*time.Millisecond
		switch {
		case err != nil:
			patience = c.awayPatience
		case !a.busy():
			return a, nil
		default:
			wait = min(max(wait, a.retryAfter()), busyWaitCap)
		}
		if time.Since(began)+wait > patience {
			return a, err
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// once sends a request and reads the whole answer.
func (c *client) once(ctx context.Context, method, path string, body any, header http.Header) (*answer, error) {
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var content io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(limited, method, c.base.String()+path, content)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	a := &answer{request: method + " " + path}
	resp, err := c.http.Do(req)
	if err == nil {
		defer resp.Body.Close()
		a.status, a.header = resp.StatusCode, resp.Header
		a.body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	return a, nil
}

// busy reports an answer that asks to come back later.
func (a *answer) busy() bool {
	switch a.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		p, _ := a.problem()
		return p.Code != codeConfigInvalid // waiting does not help against that
	}
	return false
}

// retryAfter gives the Retry-After header, 0 for none.
func (a *answer) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// problem gives the problem document of an error answer, and whether there is
// one with a code.
func (a *answer) problem() (problem, bool) {
	var p problem
	ok := a.mediaType() == "application/problem+json" && json.Unmarshal(a.body, &p) == nil && p.Code != ""
	return p, ok
}

func (a *answer) mediaType() string {
	mediaType, _, _ := mime.ParseMediaType(a.header.Get("Content-Type"))
	return mediaType
}

// decode reads the body of an answer that must have the given status.
func (a *answer) decode(status int, into any) error {
	if a.status != status {
		return a.unexpected(fmt.Sprintf("expected %d", status))
	}
	if a.mediaType() != "application/json" {
		return a.unexpected("expected application/json")
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("%s answered JSON that cannot be read: %w", a.request, err)
	}
	return nil
}

// unexpected describes an answer that should have been another one.
func (a *answer) unexpected(want string) error {
	return fmt.Errorf("%s answered %s, %s", a.request, a, want)
}

// String gives status, code and detail, or the media type when there is no
// problem document.
func (a *answer) String() string {
	p, ok := a.problem()
	switch {
	case ok && p.Instance != "":
		return fmt.Sprintf("%d %s (%s; %s)", a.status, p.Code, p.Detail, p.Instance)
	case ok:
		return fmt.Sprintf("%d %s (%s)", a.status, p.Code, p.Detail)
	case a.mediaType() == "":
		return strconv.Itoa(a.status)
	default:
		return fmt.Sprintf("%d with %s", a.status, a.mediaType())
	}
}

// sleep waits for d or for the end of ctx, whose cause it then returns.
func sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx) // also when d is over already
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
