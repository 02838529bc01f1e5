package decode

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// A json.RawMessage may have at most MaxPayload bytes.
func (r *reader) unmarshalers() *jsonv2.Unmarshalers {
	return jsonv2.JoinUnmarshalers(
		jsonv2.UnmarshalFromFunc(whole[int]), jsonv2.UnmarshalFromFunc(whole[int64]),
		jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *time.Duration) error {
			raw, err := d.ReadValue()
			if err == nil && raw.Kind() == '"' {
				*v, err = time.ParseDuration(string(unquoted(raw)))
			}
			return err
		}),
		jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *time.Time) error { return jsonv2.UnmarshalDecode(d, (*job.Time)(v)) }),
		jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *json.RawMessage) error {
			raw, err := d.ReadValue()
			switch {
			case err != nil || raw.Kind() == 'n':
			case r.limits.MaxPayload > 0 && len(raw) > r.limits.MaxPayload:
				r.invalidAt(r.base+string(d.StackPointer()),
					fmt.Sprintf("This may have at most %d bytes, but has %d.", r.limits.MaxPayload, len(raw)))
			default:
				*v = json.RawMessage(raw.Clone())
			}
			return err
		}),
		jsonv2.UnmarshalFromFunc(func(d *jsontext.Decoder, v *job.PlannedProblem) error {
			raw, err := d.ReadValue()
			if err == nil && raw.Kind() == '{' {
				*v = r.plannedProblem(r.base+string(d.StackPointer()), raw)
			}
			return err
		}),
	)
}

// whole reads integers, including forms such as 1.0 and 1e2.
func whole[T int | int64](d *jsontext.Decoder, v *T) error {
	raw, err := d.ReadValue()
	if err != nil || raw.Kind() == 'n' {
		return err
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err == nil {
		*v = T(n)
		return nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	*v = T(f)
	return err
}

// keyName is the body member with the idempotency key. The hash of a request does not cover this member.
const keyName = "idempotency_key"

// keyed returns the idempotency key from the member or the header. `hash` covers the other members in canonical form. `hash` is zero if
// there is no key or the body has mistakes.
func (r *reader) keyed(header, sent string) (key string, hash [32]byte) {
	if sent != "" && header != "" && sent != header {
		r.invalidAt("/"+keyName, "This must equal the Idempotency-Key header, or be omitted.")
	}
	if key = cmp.Or(sent, header); key != "" && r.fine() { // a request with mistakes is refused, so it needs no hash
		hash = sha256.Sum256(canonical(r.without(keyName)))
	}
	return key, hash
}

func orEmpty(body []byte) []byte {
	if len(body) == 0 {
		return []byte("{}")
	}
	return body
}

// Canonical returns a copy of a body with sorted members and normalized white space and string escapes. Numbers stay as written. It
// returns {} for an empty body, and the body unchanged if it is not JSON or longer than maxCanonical.
func Canonical(body []byte) []byte {
	body = bytes.Clone(orEmpty(body))
	if len(body) > maxCanonical {
		return body
	}
	return canonical(body)
}

func canonical(text jsontext.Value) []byte {
	_ = text.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false))
	return text
}

// unquoted decodes a JSON string, without a copy if possible.
func unquoted(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // cannot fail: the decoder has read it
	return text
}

// hasNUL reports whether a JSON string has an escaped NUL, which Postgres refuses in text. JSON does not allow an unescaped NUL.
func hasNUL(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\u0000`)) && bytes.IndexByte(unquoted(raw), 0) >= 0
}

// isBounded reports whether a number is short enough and in the range of float64, so that Postgres can store it.
func isBounded(raw []byte) bool {
	if len(raw) > maxNumberBytes {
		return false
	}
	e := bytes.IndexAny(raw, "eE")
	if e < 0 {
		return true
	}
	if exponent, err := strconv.Atoi(string(raw[e+1:])); err != nil || exponent < minExponent {
		return false
	}
	_, err := strconv.ParseFloat(string(raw), 64)
	return err == nil
}
