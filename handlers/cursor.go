package handlers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/forgerun/forgerun/job"
)

// A cursor is a place in a list, signed together with whose list it is: any
// change of it, another client or another list make it a bad one. It is not
// secret, and tells nothing but ids.

// cursorSum is how much of the HMAC-SHA-256 a cursor carries, in bytes.
const cursorSum = 16

var cursorEncoding = base64.RawURLEncoding.Strict()

var errBadCursor = &job.Error{
	Code: job.CodeMalformed, Detail: "The cursor is not one of this list.",
	Violations: []job.Violation{{Parameter: "cursor",
		Detail: "This must be the next_cursor of the page before, unchanged and with the same filters; leave it out to start anew."}},
}

// sealCursor makes the cursor of a place in a client's list. The scope names
// the list with its filters.
func (s *Server) sealCursor(ctx context.Context, client job.ID, scope string, place []byte) (string, error) {
	sum, err := s.cursorSum(ctx, client, scope, place)
	if err != nil {
		return "", err
	}
	return cursorEncoding.EncodeToString(append(sum, place...)), nil
}

// openCursor gives the place of a cursor, which must be size bytes long.
func (s *Server) openCursor(ctx context.Context, client job.ID, scope, cursor string, size int) ([]byte, error) {
	raw, err := cursorEncoding.DecodeString(cursor)
	if err != nil || len(raw) != cursorSum+size || len(cursor) != cursorEncoding.EncodedLen(len(raw)) { // line breaks would be skipped
		return nil, errBadCursor
	}
	place := raw[cursorSum:]
	sum, err := s.cursorSum(ctx, client, scope, place)
	if err != nil {
		return nil, err
	}
	if !hmac.Equal(sum, raw[:cursorSum]) {
		return nil, errBadCursor
	}
	return place, nil
}

func (s *Server) cursorSum(ctx context.Context, client job.ID, scope string, place []byte) ([]byte, error) {
	key, err := s.deps.CursorKey(ctx)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(client[:])
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(scope)))) // so that scope and place cannot be shifted
	mac.Write([]byte(scope))
	mac.Write(place)
	return mac.Sum(nil)[:cursorSum], nil
}
