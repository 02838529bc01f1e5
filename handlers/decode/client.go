package decode

import (
	"fmt"
	"slices"

	"github.com/forgerun/forgerun/job"
)

// Empty refuses a body that says anything: it is none, or {}.
func Empty(body []byte) error {
	if body == nil {
		return nil
	}
	d := newDecoder(body)
	d.document(nil)
	return d.result()
}

// CreateKey reads the body of a request for a key, which may be missing.
func CreateKey(body []byte) (rotate bool, scope job.Scope, err error) {
	scope = job.ScopeAll
	if body == nil {
		return false, scope, nil
	}
	d := newDecoder(body)
	d.document([]member{
		{name: "rotate", read: func() { rotate = d.boolean() }},
		{name: "scope", read: func() {
			scope = job.Scope(d.word(func(s string) bool { return slices.Contains(job.Scopes, job.Scope(s)) },
				"This must be read, submit or all."))
			if rotate && scope != job.ScopeAll {
				d.invalid("A key of a lesser scope replaces no other one; leave rotate out.")
			}
		}},
	})
	return rotate, scope, d.result()
}

// maxKeyIDBytes is far above the length of any key id.
const maxKeyIDBytes = 128

// RevokeKey reads the body of a request that revokes a key.
func RevokeKey(body []byte) (keyID string, err error) {
	d := newDecoder(body)
	present := false
	d.document([]member{{name: "key_id", read: func() {
		if keyID, present = d.text(); present && (keyID == "" || len(keyID) > maxKeyIDBytes) {
			d.invalid(fmt.Sprintf("This must be the key_id of an API key: 1 to %d bytes.", maxKeyIDBytes))
		}
	}}})
	d.require(present, "key_id")
	return keyID, d.result()
}
