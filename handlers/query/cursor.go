package query

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/forgerun/forgerun/job"
)

// A cursor is a position in a list, signed together with whose list it is: any
// change of it, another client or another list make it a bad one. It is not
// secret: it holds nothing but ids.

const (
	// cursorSum is how much of the HMAC-SHA-256 a cursor carries, in bytes.
	cursorSum = 16

	// maxCursorBytes is above the length of any cursor.
	maxCursorBytes = 128
)

var cursorEncoding = base64.RawURLEncoding.Strict()

func isCursor(s string) bool {
	_, err := cursorEncoding.DecodeString(s)
	return s != "" && len(s) <= maxCursorBytes && err == nil
}

// ErrBadCursor is for a cursor that is not one of the list.
var ErrBadCursor = &job.Error{
	Code: job.CodeMalformed, Detail: "The cursor is not one of this list.",
	Violations: []job.Violation{{Parameter: "cursor",
		Detail: "This must be the next_cursor of the page before, unchanged and with the same filters; leave it out to start anew."}},
}

// Seal makes the cursor of a position in an owner's list. The scope names the list with its filters.
func Seal(key []byte, owner job.ID, scope string, position []byte) string {
	return cursorEncoding.EncodeToString(append(sumOf(key, owner, scope, position), position...))
}

// Open gives the position in a cursor, which must be size bytes long.
func Open(key []byte, owner job.ID, scope, cursor string, size int) ([]byte, error) {
	raw, err := cursorEncoding.DecodeString(cursor)
	if err != nil || len(raw) != cursorSum+size || len(cursor) != cursorEncoding.EncodedLen(len(raw)) { // line breaks would be skipped
		return nil, ErrBadCursor
	}
	position := raw[cursorSum:]
	if !hmac.Equal(sumOf(key, owner, scope, position), raw[:cursorSum]) {
		return nil, ErrBadCursor
	}
	return position, nil
}

func sumOf(key []byte, owner job.ID, scope string, position []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(owner[:])
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(scope)))) // so that scope and position cannot be shifted
	mac.Write([]byte(scope))
	mac.Write(position)
	return mac.Sum(nil)[:cursorSum]
}
