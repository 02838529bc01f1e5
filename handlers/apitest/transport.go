package apitest

import (
	"bytes"
	"io"
	"net/http"
)

// Transport checks every answer that comes through it, and fails the test that
// the document was made for. The bodies of event streams pass through
// unchecked, and so does an answer that breaks off.
func (d *Document) Transport(next http.RoundTripper) http.RoundTripper {
	return transport{d, next}
}

type transport struct {
	document *Document
	next     http.RoundTripper
}

// RoundTrip sends the request on.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	var body []byte
	if res.Header.Get("Content-Type") != "text/event-stream" {
		body, err = io.ReadAll(res.Body)
		res.Body = &reread{io.MultiReader(bytes.NewReader(body), failing{err}), res.Body}
	}
	if err == nil {
		t.document.Check(t.document.t, r, res, body)
	}
	return res, nil
}

// reread gives a body again that was read.
type reread struct {
	io.Reader
	io.Closer
}

// failing ends a body as it ended when it was read.
type failing struct{ err error }

// Read gives the error, or the end.
func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}
