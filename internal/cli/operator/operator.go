// Package operator sends requests to the operator API, /admin/v1 on the admin listener.
package operator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	tries     = 4
	timeout   = 30 * time.Second
	maxWait   = 30 * time.Second // that an answer may ask for
	maxAnswer = 64 << 20
)

// Client sends requests with one token.
type Client struct {
	base  string
	auth  func() string // a function, since fmt prints any other field
	agent string
	http  *http.Client
}

// New makes a client of the admin listener at base; token may be "".
func New(base, token, userAgent string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("the address of the admin listener must look like http://127.0.0.1:8081")
	}
	path := strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/admin/v1")
	return &Client{
		base: u.Scheme + "://" + u.Host + path, auth: func() string { return token }, agent: userAgent,
		http: &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// Console is the address of the console.
func (c *Client) Console() string { return c.base + "/" }

// String says where requests go.
func (c *Client) String() string { return "operator API at " + c.base }

// Problem is a refusal of the operator API.
type Problem struct {
	Status     int
	Code       string `json:"code"`
	Title      string `json:"title"`
	Detail     string `json:"detail"`
	RetryAfter time.Duration
}

// Error says what was wrong.
func (p *Problem) Error() string {
	text := cmp.Or(p.Detail, p.Title, "the answer has no explanation")
	return fmt.Sprintf("the operator API answers %d: %s%s", p.Status, text, map[bool]string{true: " (" + p.Code + ")"}[p.Code != ""])
}

// Get reads; query may be nil.
func (c *Client) Get(ctx context.Context, path string, query url.Values) (json.RawMessage, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.Do(ctx, http.MethodGet, path, nil)
}

// List reads a list page by page until it has limit entries; 0 for all.
func (c *Client) List(ctx context.Context, path string, query url.Values, limit int) ([]any, error) {
	if query == nil {
		query = url.Values{}
	}
	var all []any
	for {
		if limit > 0 {
			query.Set("limit", strconv.Itoa(min(100, limit-len(all))))
		}
		text, err := c.Get(ctx, path, query)
		if err != nil {
			return nil, err
		}
		var page struct {
			Data []json.RawMessage `json:"data"`
			Page struct {
				NextCursor *string `json:"next_cursor"`
			} `json:"page"`
		}
		if err := json.Unmarshal(text, &page); err != nil {
			return nil, fmt.Errorf("the operator API's list cannot be read: %w", err)
		}
		for _, entry := range page.Data {
			all = append(all, entry)
		}
		if page.Page.NextCursor == nil || limit > 0 && len(all) >= limit {
			return all, nil
		}
		query.Set("cursor", *page.Page.NextCursor)
	}
}

// Do sends a request. What reads is sent again, as Retry-After says, while the service is overloaded or does not answer; what
// changes is sent once.
func (c *Client) Do(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	for try := 1; ; try++ {
		answer, err := c.once(ctx, method, path, body)
		problem, refused := errors.AsType[*Problem](err)
		passing := !refused || problem.Status == http.StatusTooManyRequests || problem.Status == http.StatusServiceUnavailable
		if err == nil || method != http.MethodGet || !passing || try == tries || ctx.Err() != nil {
			return answer, err
		}
		wait := time.Duration(try*try) * 250 * time.Millisecond
		if refused {
			wait = max(wait, problem.RetryAfter)
		}
		select {
		case <-time.After(min(wait, maxWait)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Client) once(ctx context.Context, method, path string, body any) (json.RawMessage, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+"/admin/v1"+path, content)
	if err != nil {
		return nil, err
	}
	request.Header.Set("User-Agent", c.agent)
	if method != http.MethodGet {
		request.Header.Set("Content-Type", "application/json") // also without a body: what no form of a page can send
	}
	if token := c.auth(); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if response.StatusCode >= 300 {
		return nil, problemOf(response, text)
	}
	return text, nil
}

func problemOf(response *http.Response, text []byte) error {
	p := &Problem{}
	_ = json.Unmarshal(text, p) // an answer of something in between has no document
	p.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		p.RetryAfter = time.Duration(seconds) * time.Second
	}
	return p
}
