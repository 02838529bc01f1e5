package decode

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// keyed reads the whole body as one object, one of whose members is keyMember.
// It gives the idempotency key, that of the body or of the header, and if there
// is one the hash of the other members.
func (d *decoder) keyed(header string, members []member) (key string, hash [32]byte) {
	d.document(members)
	if d.key != "" && header != "" && d.key != header {
		d.values = append(d.values, job.Violation{
			Pointer: "/" + keyName, Detail: "This must be the key of the Idempotency-Key header, or be left out.",
		})
	}
	if key = cmp.Or(d.key, header); key != "" && len(d.form)+len(d.values) == 0 { // else it is refused, whatever the key
		hash = canonicalHash(d.outer)
	}
	return key, hash
}

// keyName is the name of the idempotency key, which is not part of what is
// compared.
const keyName = "idempotency_key"

// keyMember is the idempotency key in the body.
func (d *decoder) keyMember() member {
	return member{name: keyName, read: func() { d.key = d.word(ValidKey, "The key must be "+KeyForm) }}
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
		text = append(append(append(text, '"'), m.name...), '"', ':')
		text = append(text, canonical(m.value)...)
	}
	return sha256.Sum256(append(text, '}'))
}

// Canonical gives the canonical form of a body: that of {} for none, and of text
// that is not JSON, which will be refused, the text itself. So it is of text that is
// far too long for what such bodies can say. It is a copy.
func Canonical(body []byte) []byte {
	value := jsontext.Value("{}")
	if len(body) > 0 {
		value = jsontext.Value(body).Clone()
	}
	if len(value) > maxCanonical {
		return value
	}
	_ = value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return value
}

// canonical gives the canonical form of a member's value as sent, colon and
// white space before it included. A string without escapes and what is written
// without quotes and brackets have no other form.
func canonical(sent []byte) []byte {
	value := jsontext.Value(bytes.TrimLeft(sent, ": \t\r\n"))
	if bytes.ContainsAny(value, `\{[`) {
		value = value.Clone()
		_ = value.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) // valid JSON
	}
	return value
}

// These end the reading of what is JSON.
var (
	errTooDeep   = errors.New("nested too deeply")
	errNotObject = errors.New("not an object")
	errTooMany   = errors.New("too many members or elements")
)
