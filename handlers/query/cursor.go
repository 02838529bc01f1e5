package query

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/forgerun/forgerun/job"
)

// A cursor is a position in a list, signed together with the list's owner and scope. A changed cursor is invalid. A cursor of another
// client or list is invalid too. A cursor contains only ids, numbers and times, so it is not encrypted.

const (
	// cursorSum is the number of HMAC-SHA-256 bytes in a cursor.
	cursorSum = 16

	// maxCursorBytes is well above the length of any cursor.
	maxCursorBytes = 128
)

var cursorEncoding = base64.RawURLEncoding.Strict()

func isCursor(s string) bool {
	_, err := cursorEncoding.DecodeString(s)
	return s != "" && len(s) <= maxCursorBytes && err == nil
}

// ErrBadCursor is returned for a cursor that does not belong to the list.
var ErrBadCursor = &job.Error{
	Code: job.CodeMalformed, Detail: "The cursor does not belong to this list.",
	Violations: []job.Violation{{Parameter: "cursor",
		Detail: "This must be the next_cursor of the previous page, unchanged and with the same filters; omit it to start again."}},
}

// Cursors returns the secret that signs cursors. All processes use the same secret.
type Cursors func(context.Context) (key []byte, err error)

// Seal returns the cursor of a position in an owner's list. `scope` identifies the list and its filters.
func (c Cursors) Seal(ctx context.Context, owner job.ID, scope string, position []byte) (string, error) {
	key, err := c(ctx)
	if err != nil {
		return "", err
	}
	return cursorEncoding.EncodeToString(append(sumOf(key, owner, scope, position), position...)), nil
}

// Open returns the position in a cursor. The position must be `size` bytes long.
func (c Cursors) Open(ctx context.Context, owner job.ID, scope, cursor string, size int) ([]byte, error) {
	raw, err := cursorEncoding.DecodeString(cursor)
	// DecodeString ignores line breaks, so the last comparison is needed to refuse a cursor that contains some.
	if err != nil || len(raw) != cursorSum+size || len(cursor) != cursorEncoding.EncodedLen(len(raw)) {
		return nil, ErrBadCursor
	}
	key, err := c(ctx)
	if err != nil {
		return nil, err
	}
	position := raw[cursorSum:]
	if !hmac.Equal(sumOf(key, owner, scope, position), raw[:cursorSum]) {
		return nil, ErrBadCursor
	}
	return position, nil
}

// List is a page of a list.
type List[V any] struct {
	Data []V  `json:"data"`
	Page Info `json:"page"`
}

// Info has the page limit and the next cursor.
type Info struct {
	Limit      int     `json:"limit"`
	NextCursor *string `json:"next_cursor"` // null at the end
}

// ListOf returns a page of entries. The next cursor of the page is null.
func ListOf[T, V any](entries []T, limit int, view func(T) V) List[V] {
	list := List[V]{make([]V, len(entries)), Info{Limit: limit}}
	for i, entry := range entries {
		list.Data[i] = view(entry)
	}
	return list
}

func sumOf(key []byte, owner job.ID, scope string, position []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(owner[:])
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(scope)))) // the length shows where the scope ends and the position begins
	mac.Write([]byte(scope))
	mac.Write(position)
	return mac.Sum(nil)[:cursorSum]
}

// PositionBytes is the length of a position in a cursor. A position consists of a transaction, an id and a seq.
const PositionBytes = 8 + len(job.ID{}) + SeqBytes

// SeqBytes is the length of a seq in a cursor.
const SeqBytes = 4

// PositionOf decodes a position.
func PositionOf(b []byte) job.Position {
	at := PositionBytes - SeqBytes
	return job.Position{Tx: binary.BigEndian.Uint64(b), ID: job.ID(b[8:at]), Seq: int(binary.BigEndian.Uint32(b[at:]))}
}

// Bytes encodes a position for a cursor.
func Bytes(p job.Position) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, PositionBytes), p.Tx)
	return binary.BigEndian.AppendUint32(append(b, p.ID[:]...), uint32(p.Seq))
}
