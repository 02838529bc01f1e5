package decode

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// keyed reads the whole body as one object, one of whose members is keyMember.
// It gives the idempotency key, that of the body or of the header, and if there
// is one the hash of the other members.
func (d *decoder) keyed(header string, members []member) (key string, hash [32]byte) {
	d.document(members)
	if d.key != "" && header != "" && d.key != header {
		d.invalidAt("/"+keyName, "This must be the key of the Idempotency-Key header, or be left out.")
	}
	if key = cmp.Or(d.key, header); key != "" && d.fine() { // else it is refused, whatever the key
		hash = canonicalHash(d.outer)
	}
	return key, hash
}

// keyName is the name of the idempotency key, which is not part of what is
// compared.
const keyName = "idempotency_key"

// keyMember is the idempotency key in the body.
func (d *decoder) keyMember() member {
	return member{keyName, optional, set(&d.key, word(ValidKey, "The key must be "+KeyForm))}
}

// canonicalHash is the SHA-256 of an object, without its idempotency key, in
// canonical form: members sorted, white space and string escapes normalised,
// numbers as they were written. It reorders members.
func canonicalHash(members []outerMember) [32]byte {
	slices.SortFunc(members, func(a, b outerMember) int { return strings.Compare(a.name, b.name) })
	text := []byte{'{'}
	for _, m := range members {
		if m.name == keyName {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		value := m.value
		if bytes.ContainsAny(value, `\{[`) { // else it has no other form
			value = canonical(value)
		}
		text = append(append(append(text, '"'), m.name...), '"', ':')
		text = append(text, value...)
	}
	return sha256.Sum256(append(text, '}'))
}

// Canonical gives the canonical form of a body: that of {} for none, and of text
// that is not JSON, which will be refused, the text itself. So it is of text that is
// far too long for what such bodies can say. It is a copy.
func Canonical(body []byte) []byte {
	if len(body) > maxCanonical {
		return bytes.Clone(body)
	}
	return canonical(orEmpty(body))
}

func canonical(text []byte) []byte {
	value := jsontext.Value(text).Clone()
	_ = value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return value
}
