package client

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
)

// maxRedirects is how many redirects are followed in one try.
const maxRedirects = 10

// roundTrip sends one request, and follows redirects to the same origin.
func (c *Client) roundTrip(ctx context.Context, r *request) (*http.Response, error) {
	target := r.url()
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	for followed := 0; ; followed++ {
		sent, err := c.request(ctx, r, target)
		if err != nil {
			return nil, err
		}
		response, err := c.transport.RoundTrip(sent)
		if err != nil || followed == maxRedirects {
			return response, err
		}
		if target = redirected(sent, response); target == "" {
			return response, nil
		}
		_, _ = io.CopyN(io.Discard, response.Body, maxExcerpt) // so that the connection is kept
		_ = response.Body.Close()
	}
}

// redirected returns the address at which a redirect wants the request again, "" if there is none at the same origin: another one would
// get the key.
func redirected(sent *http.Request, response *http.Response) string {
	switch response.StatusCode {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther:
		if sent.Method != http.MethodGet {
			return ""
		}
	default:
		return ""
	}
	to, err := sent.URL.Parse(response.Header.Get("Location"))
	if err != nil || to.Scheme != sent.URL.Scheme || to.Host != sent.URL.Host {
		return ""
	}
	return to.String()
}

// request makes one request. Its body has no GetBody, so that net/http does not repeat a submission by itself: MaxTries counts all
// requests.
func (c *Client) request(ctx context.Context, r *request, target string) (*http.Request, error) {
	var body io.Reader = http.NoBody
	if r.body != nil {
		body = io.NopCloser(bytes.NewReader(r.body))
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	sent.ContentLength = int64(len(r.body))
	sent.Header.Set("Accept", "application/json")
	if r.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(sent.Header, r.header)
	sent.Header.Set("Accept-Encoding", "identity") // digests are of the bytes as they are stored
	sent.Header.Set("User-Agent", c.userAgent)
	if c.session != "" {
		sent.Header.Set("ForgeRun-Session", c.session)
	}
	if auth := c.auth(); auth != "" {
		sent.Header.Set("Authorization", auth)
	}
	return sent, nil
}
