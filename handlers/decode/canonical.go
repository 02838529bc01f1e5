package decode

import (
	"bytes"
	"cmp"
	"crypto/sha256"

	"github.com/go-json-experiment/json/jsontext"
)

// keyName is the name of the idempotency key, which is not part of the canonical form.
const keyName = "idempotency_key"

// keyed returns the idempotency key, from the body or the header, and the hash of the body's other members if there is a
// key: the SHA-256 of their canonical form.
func (r *reader) keyed(header string, sent *string) (key string, hash [32]byte) {
	if sent != nil && header != "" && *sent != header {
		r.invalidAt("/"+keyName, "This must be the key of the Idempotency-Key header, or be left out.")
	}
	if key = cmp.Or(value(sent), header); key != "" && r.fine() { // else it is refused, whatever the key
		hash = sha256.Sum256(canonical(r.without([]string{keyName})))
	}
	return key, hash
}

// orEmpty returns {} for a body that may be missing.
func orEmpty(body []byte) []byte {
	if len(body) == 0 {
		return []byte("{}")
	}
	return body
}

// Canonical returns a copy of a body in canonical form: members sorted, white space and string escapes normalised, numbers as
// they were written. It is {} for an empty body, and the body itself if that is not JSON or far too long to be accepted.
func Canonical(body []byte) []byte {
	body = bytes.Clone(orEmpty(body))
	if len(body) > maxCanonical {
		return body
	}
	return canonical(body)
}

// canonical changes a text.
func canonical(text jsontext.Value) []byte {
	_ = text.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return text
}
