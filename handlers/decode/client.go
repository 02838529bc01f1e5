package decode

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

// Empty refuses a body that says anything: it is none, or {}.
func Empty(body []byte) error { return readBody(orEmpty(body), nil).result() }

// Key is a request for an API key.
type Key struct {
	Rotate bool
	Scope  job.Scope
}

// CreateKey reads the body of a request for a key, which may be missing.
func CreateKey(body []byte) (Key, error) {
	var k Key
	d := readBody(orEmpty(body), []member{
		{"rotate", optional, set(&k.Rotate, readBool)},
		{"scope", optional, set(&k.Scope, choice("scope", job.Scopes))},
	})
	k.Scope = cmp.Or(k.Scope, job.ScopeAll)
	if k.Rotate && k.Scope != job.ScopeAll {
		d.invalidAt("/scope", "A key of a lesser scope replaces no other one; leave rotate out.")
	}
	return k, d.result()
}

// maxKeyID is far above the length of any key id.
const maxKeyID = 128

// RevokeKey reads the body of a request that revokes a key.
func RevokeKey(body []byte) (keyID string, err error) {
	id := word(func(s string) bool { return s != "" && utf8.RuneCountInString(s) <= maxKeyID },
		fmt.Sprintf("This must be the key_id of an API key: 1 to %d characters.", maxKeyID))
	err = readBody(body, []member{{"key_id", required, set(&keyID, id)}}).result()
	return keyID, err
}
