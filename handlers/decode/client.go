package decode

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

// Empty refuses a body that says anything: it is none, or {}.
func Empty(body []byte) error {
	if len(body) == 0 {
		return nil
	}
	d := newDecoder(body)
	d.document(nil)
	return d.result()
}

// CreateKey reads the body of a request for a key, which may be missing.
func CreateKey(body []byte) (rotate bool, scope job.Scope, err error) {
	if len(body) == 0 {
		return false, job.ScopeAll, nil
	}
	d := newDecoder(body)
	d.document([]member{
		{name: "rotate", read: func() { rotate = d.boolean() }},
		{name: "scope", read: func() { scope, _ = choose(d, "scope", job.Scopes) }},
	})
	scope = cmp.Or(scope, job.ScopeAll)
	if rotate && scope != job.ScopeAll {
		d.wrong("/scope", "A key of a lesser scope replaces no other one; leave rotate out.")
	}
	return rotate, scope, d.result()
}

// maxKeyID is far above the length of any key id.
const maxKeyID = 128

// RevokeKey reads the body of a request that revokes a key.
func RevokeKey(body []byte) (keyID string, err error) {
	d := newDecoder(body)
	present := false
	d.document([]member{{name: "key_id", read: func() {
		if keyID, present = d.text(); present && (keyID == "" || utf8.RuneCountInString(keyID) > maxKeyID) {
			d.invalid(fmt.Sprintf("This must be the key_id of an API key: 1 to %d characters.", maxKeyID))
		}
	}}})
	d.require(present, "key_id")
	return keyID, d.result()
}
