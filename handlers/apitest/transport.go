package apitest

import (
	"bytes"
	"cmp"
	"io"
	"net/http"
	"testing/iotest"
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
		again := io.MultiReader(bytes.NewReader(body), iotest.ErrReader(cmp.Or(err, io.EOF)))
		res.Body = struct {
			io.Reader
			io.Closer
		}{again, res.Body}
	}
	if err == nil {
		t.document.Check(t.document.t, r, res, body)
	}
	return res, nil
}
