package job

import (
	"encoding/hex"
	"errors"
	"regexp"
	"strings"
	"time"
)

// ID is a UUID: version 7 for jobs, events, batches, webhooks and deliveries, version 4 for clients. The zero ID means "none".
type ID [16]byte

// ErrBadID is returned by ParseID unless the text is a canonical UUID.
var ErrBadID = errors.New("not a UUID of the form xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")

// ParseID reads the canonical 36-character form, in upper or lower case. It refuses other forms of a UUID, such as braces or urn:uuid:.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return ID{}, ErrBadID
	}
	packed := s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	if _, err := hex.Decode(id[:], []byte(packed)); err != nil {
		return ID{}, ErrBadID
	}
	return id, nil
}

// String returns the canonical lower-case form.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// IsZero reports whether id is the zero ID, "none".
func (id ID) IsZero() bool { return id == ID{} }

// MarshalText returns the canonical form, for JSON and logs.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText accepts the same text as ParseID.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// ErrBadTime is returned by ParseTime.
var ErrBadTime = errors.New("not an RFC 3339 timestamp in UTC, such as 2030-01-31T12:00:00Z")

var timeForm = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|\+00:00)$`)

// lastTime is the last microsecond that RFC 3339 can express.
var lastTime = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)

// ParseTime parses an RFC 3339 timestamp in UTC ("Z" or "+00:00", in either case) with at most nine decimals. It rounds up to microseconds,
// the precision of the database. Rounding up ensures that no job runs early. The result is at most lastTime.
func ParseTime(s string) (time.Time, error) {
	if !timeForm.MatchString(s) {
		return time.Time{}, ErrBadTime
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil {
		return time.Time{}, ErrBadTime
	}
	t = t.UTC()
	if down := t.Truncate(time.Microsecond); down.Before(t) && down.Before(lastTime) {
		return down.Add(time.Microsecond), nil
	}
	return t.Truncate(time.Microsecond), nil
}

// Time is a time with the JSON format of the API: RFC 3339 in UTC, with Z.
type Time time.Time

const timeLayout = "2006-01-02T15:04:05.000000Z"

// MarshalText writes t in UTC with microseconds.
func (t Time) MarshalText() ([]byte, error) {
	return time.Time(t).UTC().AppendFormat(nil, timeLayout), nil
}

// UnmarshalText accepts the same text as ParseTime.
func (t *Time) UnmarshalText(text []byte) error {
	parsed, err := ParseTime(string(text))
	*t = Time(parsed)
	return err
}

// TimeOf converts t to a *Time; nil stays nil.
func TimeOf(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	v := Time(*t)
	return &v
}
