package proxy

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/wire"
)

const (
	maxDocument = 1 << 20 // maximum size of a body that the proxy parses; larger bodies pass unparsed
	maxUnpacked = 8 << 20 // maximum size of a body after decompression
	maxNested   = 3
)

// payload identifies the content of a body. Equal contents have the same hash, even if framing, compression or member order differ. A
// payload that cannot be compared has no hash.
type payload struct {
	kind   string // media type
	packed string // content coding
	hash   hash.Hash
	text   []byte // the first maxDocument bytes
	size   int64
	parts  *parts // nil if the body is not multipart
}

func newPayload(h http.Header) *payload {
	kind, parameters, _ := mime.ParseMediaType(h.Get("Content-Type"))
	p := &payload{kind: kind, packed: strings.ToLower(h.Get("Content-Encoding")), hash: sha256.New()}
	if strings.HasPrefix(kind, "multipart/") && parameters["boundary"] != "" && p.packed == "" {
		p.parts = newParts(parameters["boundary"])
	}
	return p
}

func (p *payload) note(b []byte) {
	p.size += int64(len(b))
	if p.parts != nil {
		_, _ = p.parts.Write(b) // never fails
		return
	}
	p.hash.Write(b)
	p.text = append(p.text, b[:min(len(b), maxDocument-len(p.text))]...)
}

// end returns a hash of the payload, and the decoded document if it is JSON. The hash is "" if the payload cannot be compared. end must be
// called once.
func (p *payload) end(whole bool) (same string, document any) {
	if p.parts != nil {
		return p.parts.end(whole), nil
	}
	if !whole || p.size == 0 {
		return "", nil
	}
	fits := p.size <= maxDocument
	text := p.text
	switch p.packed {
	case "", "identity":
	case "gzip", "x-gzip":
		if text = unpacked(text); !fits || text == nil {
			return "", nil
		}
	default: // the same content may be compressed differently each time
		return "", nil
	}
	if fits {
		if document = api.Decode(text); document != nil { // the hash of JSON does not depend on member order and spacing
			alike := jsontext.Value(text).Clone()
			_ = alike.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) // unchanged on an error
			return wire.Sum(alike), document
		}
	}
	switch {
	// A multipart body gets here only if it is compressed or has no boundary.
	case encrypted(p.kind), !fits && unordered(p.kind), strings.HasPrefix(p.kind, "multipart/"):
		return "", nil
	case p.kind == "application/x-www-form-urlencoded":
		if form, err := url.ParseQuery(string(text)); err == nil {
			text = []byte(form.Encode())
		}
		return wire.Sum(text), nil
	case fits:
		return wire.Sum(text), nil
	}
	return hex.EncodeToString(p.hash.Sum(nil)[:8]), nil
}

func unordered(kind string) bool {
	return kind == "" || strings.HasSuffix(kind, "json") || kind == "application/x-www-form-urlencoded"
}

// encrypted reports whether a media type has encrypted content, so that bodies with equal content differ.
func encrypted(kind string) bool {
	return strings.HasPrefix(kind, "application/jose") || strings.HasPrefix(kind, "application/pkcs7") || strings.HasSuffix(kind, "encrypted")
}

// unpacked returns nil if the text is too large or damaged.
func unpacked(packed []byte) []byte {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err != nil || len(text) > maxUnpacked {
		return nil
	}
	return text
}

// parts computes a hash of a multipart body while the body passes through the proxy. The hash does not depend on the boundary.
type parts struct {
	*io.PipeWriter
	sum chan string
}

func newParts(boundary string) *parts {
	from, to := io.Pipe()
	p := &parts{to, make(chan string, 1)}
	go func() { // runs until end is called
		same, err := sumOfParts(from, boundary, 0)
		if err != nil {
			same = ""
		}
		if _, err = io.Copy(io.Discard, from); err != nil { // the client has gone
			same = ""
		}
		p.sum <- same
	}()
	return p
}

func (p *parts) end(whole bool) string {
	if whole {
		_ = p.Close()
	} else {
		_ = p.CloseWithError(io.ErrUnexpectedEOF)
	}
	return <-p.sum
}

// sumOfParts returns a hash that does not depend on the order of the parts.
func sumOfParts(body io.Reader, boundary string, depth int) (string, error) {
	var all []string
	for r := multipart.NewReader(body, boundary); ; {
		part, err := r.NextRawPart()
		if err == io.EOF { //nolint:errorlint // multipart.Reader never wraps it
			slices.Sort(all)
			return wire.Sum([]byte(strings.Join(all, "\n"))), nil
		}
		if err != nil {
			return "", err
		}
		one, err := sumOfPart(part, depth)
		if err != nil {
			return "", err
		}
		all = append(all, one)
	}
}

func sumOfPart(part *multipart.Part, depth int) (string, error) {
	if part.Header.Get("Content-Id") != "" { // not comparable: ids are random, and other parts refer to them
		return "", fmt.Errorf("the parts refer to each other")
	}
	h := sha256.New()
	kind, parameters, _ := mime.ParseMediaType(part.Header.Get("Content-Type"))
	nested := strings.HasPrefix(kind, "multipart/") && parameters["boundary"] != "" && depth < maxNested
	for _, name := range slices.Sorted(maps.Keys(part.Header)) {
		if !nested || name != "Content-Type" {
			_, _ = fmt.Fprintf(h, "%s: %q\n", name, part.Header[name]) // writing to a hash never fails
		}
	}
	if nested {
		inner, err := sumOfParts(part, parameters["boundary"], depth+1)
		_, _ = io.WriteString(h, kind+inner)
		return hex.EncodeToString(h.Sum(nil)), err
	}
	_, err := io.Copy(h, part)
	return hex.EncodeToString(h.Sum(nil)), err
}
