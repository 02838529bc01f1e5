// Package operators manages the tokens of the service's operators. Each token has a name, so the audit log can name the operator, and a
// single token can be removed.
package operators

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Operator is a person or program with a token.
type Operator struct {
	Name     string
	ReadOnly bool // may read everything and change nothing
}

// Tokens has the tokens of all operators, stored as hashes.
type Tokens struct{ all []known }

type known struct {
	Operator
	hash [sha256.Size]byte
}

// minToken is the minimum length of a token in bytes. A hexadecimal token of this length has 64 bits.
const minToken = 16

var named = regexp.MustCompile(`^([a-z][a-z0-9._-]{0,31}):(.*)$`)

// Default names of operators, for tokens without a name.
const (
	DefaultName       = "admin"
	DefaultReaderName = "reader"
)

// Parse reads two lists of tokens: `operators` may change everything, `readers` may only read. A list contains TOKEN or NAME:TOKEN,
// separated by commas, or is empty. Error messages contain names but never tokens.
func Parse(operators, readers string) (Tokens, error) {
	var t Tokens
	if err := t.add(operators, Operator{Name: DefaultName}); err != nil {
		return Tokens{}, err
	}
	if err := t.add(readers, Operator{Name: DefaultReaderName, ReadOnly: true}); err != nil {
		return Tokens{}, err
	}
	return t, nil
}

func (t *Tokens) add(list string, one Operator) error {
	if list == "" {
		return nil
	}
	if strings.HasSuffix(list, "\n") { // a common mistake, because files and the output of echo end with a line break
		return errors.New("the value ends with a line break, which a request cannot contain: remove the line break")
	}
	for i, token := range strings.Split(list, ",") {
		if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return fmt.Errorf("token %d of %d contains a space or a character that is not printable ASCII", i+1, strings.Count(list, ",")+1)
		}
		o := one
		if match := named.FindStringSubmatch(token); match != nil {
			o.Name, token = match[1], match[2]
		}
		if len(token) < minToken {
			return fmt.Errorf("token %d of %d (%s) has fewer than %d characters", i+1, strings.Count(list, ",")+1, o.Name, minToken)
		}
		hash := sha256.Sum256([]byte(token))
		for _, other := range t.all {
			switch {
			case other.Name == o.Name:
				return fmt.Errorf("two tokens are called %s: give each its own name, as in name:token", o.Name)
			case other.hash == hash:
				return fmt.Errorf("%s and %s have the same token", other.Name, o.Name)
			}
		}
		t.all = append(t.all, known{o, hash})
	}
	return nil
}

// None reports whether there are no tokens.
func (t Tokens) None() bool { return len(t.all) == 0 }

// Find returns the owner of the token. It compares all hashes in constant time, to prevent timing attacks.
func (t Tokens) Find(presented string) (found Operator, ok bool) {
	hash := sha256.Sum256([]byte(presented))
	for _, k := range t.all {
		if subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1 {
			found, ok = k.Operator, true
		}
	}
	return found, ok
}
