package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/forgerun/forgerun/job"
)

// value reads a value that is not null, and records what is wrong with it; then it is
// not ok, and v is not to be used.
type value[T any] func(d *decoder) (v T, ok bool)

// set makes a reader of a value that is stored if it is right.
func set[T any](to *T, read value[T]) func(*decoder) {
	return func(d *decoder) {
		if v, ok := read(d); ok {
			*to = v
		}
	}
}

// patch is set for a removable member of a merge patch, of which null makes the zero value.
func patch[T any](to **T, read value[T]) func(*decoder) {
	return func(d *decoder) {
		*to = new(T)
		if !d.null() {
			**to, _ = read(d)
		}
	}
}

// as gives values in another type.
func as[A, B any](read value[A], convert func(A) B) value[B] {
	return func(d *decoder) (b B, ok bool) {
		a, ok := read(d)
		if !ok {
			return b, false
		}
		return convert(a), true
	}
}

// pointer is for values that may be absent, and whose zero value says something.
func pointer[T any](read value[T]) value[*T] { return as(read, func(v T) *T { return &v }) }

// refuse reads a value of any kind, and says why it may not be there.
func refuse(detail string) func(*decoder) {
	return func(d *decoder) {
		d.tree()
		d.malformed(detail)
	}
}

func readText(d *decoder) (string, bool) {
	if !d.begins('"', "a string") {
		return "", false
	}
	raw := d.value()
	if d.err != nil {
		return "", false
	}
	if hasNUL(raw) {
		d.malformed(nulRefused)
		return "", false
	}
	return unquote(raw), true
}

// parsed is for strings that stand for something; wrong says why one does not, "" if it does.
func parsed[T any](parse func(d *decoder, text string) (v T, wrong string)) value[T] {
	return func(d *decoder) (v T, ok bool) {
		text, ok := readText(d)
		if !ok {
			return v, false
		}
		v, wrong := parse(d, text)
		if wrong != "" {
			d.invalid(wrong)
		}
		return v, wrong == ""
	}
}

// unless gives what is wrong with a value that is not right.
func unless(right bool, wrong string) string {
	if right {
		return ""
	}
	return wrong
}

// checked is for strings as they are; check says what is wrong with one, "" for nothing.
func checked(check func(text string) string) value[string] {
	return parsed(func(_ *decoder, text string) (string, string) { return text, check(text) })
}

// word is for strings that must satisfy valid.
func word(valid func(string) bool, detail string) value[string] {
	return checked(func(text string) string { return unless(valid(text), detail) })
}

// choice is for strings that must be one of the values.
func choice[T ~string](what string, values []T) value[T] {
	return oneOf(what, values, "It must be "+OneOf(values)+".")
}

// oneOf is a choice; allowed is a sentence about what it may be.
func oneOf[T ~string](what string, values []T, allowed string) value[T] {
	return parsed(func(d *decoder, text string) (T, string) {
		if slices.Contains(values, T(text)) {
			return T(text), ""
		}
		return "", noSuch(d, what, text, values, allowed)
	})
}

// noSuch says that a text is none of the values; allowed is a sentence about what it may be.
func noSuch[T ~string](d *decoder, what, text string, values []T, allowed string) string {
	return "There is no such " + what + "." + suggest(d, text, values) + " " + allowed
}

// suggest is DidYouMean, for so many wrong names of a body.
func suggest[T ~string](d *decoder, text string, known []T) string {
	if d.guess == 0 || len(text) > maxGuessBytes {
		return ""
	}
	d.guess--
	return DidYouMean(text, known)
}

var readTime = parsed(func(_ *decoder, text string) (time.Time, string) {
	t, err := job.ParseTime(text)
	return t, unless(err == nil, "This must be "+TimeForm+".")
})

var readID = parsed(func(_ *decoder, text string) (job.ID, string) {
	id, err := job.ParseID(text)
	return id, unless(err == nil && !id.IsZero(), "This must be an id, such as 0190a1b2-c3d4-7000-8000-000000000b01.")
})

// maxSpanText is the length of a duration as it is written, in characters.
const maxSpanText = 64

// span is for durations as Go writes them.
func span[T ~int64](least, most T, form string) value[T] {
	return parsed(func(_ *decoder, text string) (T, string) {
		d, err := time.ParseDuration(text)
		length := T(d)
		return length, unless(err == nil && utf8.RuneCountInString(text) <= maxSpanText && least <= length && length <= most, form)
	})
}

// readDuration is for durations of a job's work and attempts.
var readDuration = span(0, 24*time.Hour, `This must be a duration from "0s" to "24h", such as "200ms", "1.5s" or "1m30s".`)

// readBool takes what is of the wrong type for false, and for ok: what depends on it is checked too.
func readBool(d *decoder) (is, ok bool) {
	kind := d.json.PeekKind()
	if d.tree(); kind != 't' && kind != 'f' {
		d.wrongType("true or false")
	}
	return kind == 't', true
}

// numeric is parsed for numbers.
func numeric[T any](want string, parse func(text string) (v T, wrong string)) value[T] {
	return func(d *decoder) (v T, ok bool) {
		if !d.begins('0', want) {
			return v, false
		}
		v, wrong := parse(string(d.value()))
		if d.err == nil && wrong != "" {
			d.invalid(wrong)
		}
		return v, d.err == nil && wrong == ""
	}
}

// number is for numbers that must satisfy valid.
func number(valid func(float64) bool, detail string) value[float64] {
	return numeric("a number", func(text string) (float64, string) {
		n, err := strconv.ParseFloat(text, 64)
		return n, unless(err == nil && valid(n), detail)
	})
}

// integer is for whole numbers within bounds, also in a form such as 1.0 or 1e2.
func integer[T int | int64](least, most T) value[T] {
	return numeric("a whole number", func(text string) (T, string) {
		n, whole := wholeNumber(text)
		if whole && int(least) <= n && n <= int(most) {
			return T(n), ""
		}
		if int(most) == math.MaxInt {
			return 0, fmt.Sprintf("This must be a whole number of at least %d.", least)
		}
		return 0, fmt.Sprintf("This must be a whole number from %d to %d.", least, most)
	})
}

func wholeNumber(text string) (int, bool) {
	if n, err := strconv.Atoi(text); err == nil {
		return n, true
	}
	n, err := strconv.ParseFloat(text, 64)
	return int(n), err == nil && n == math.Trunc(n) && math.Abs(n) <= 1<<53
}

// list is for arrays of at most so many values.
func list[T any](most int, what string, item value[T]) value[[]T] {
	return func(d *decoder) (all []T, ok bool) {
		n, ok := d.array("an array", func(i int) {
			if i >= most {
				d.tree()
				return
			}
			if v, ok := item(d); ok {
				all = append(all, v)
			}
		})
		if n > most {
			d.invalid(fmt.Sprintf("There may be at most %d %s.", most, what))
		}
		return all, ok
	}
}

// array reads an array; item reads each of its values, of which none may be null. It is
// false for something else, which is refused.
func (d *decoder) array(want string, item func(i int)) (length int, ok bool) {
	if !d.begins('[', want) {
		return 0, false
	}
	d.token()
	for ; d.err == nil && d.json.PeekKind() != ']'; length++ {
		if d.null() {
			d.malformed("Null is not allowed in this array.")
			continue
		}
		item(length)
	}
	d.token()
	return length, true
}

// upTo is for arrays of at most so many objects, wherever one is too many.
func upTo[T any](most int, tooMany string, item func(*decoder) T) value[[]T] {
	return func(d *decoder) (all []T, ok bool) {
		_, ok = d.array("an array", func(i int) {
			if i == most {
				d.malformed(tooMany)
			}
			if v := item(d); i < most {
				all = append(all, v)
			}
		})
		return all, ok
	}
}

// readPayload reads JSON of the client's own, and gives a copy of it as sent.
func readPayload(d *decoder) (json.RawMessage, bool) {
	raw := d.tree()
	if len(raw) > d.limits.MaxPayload {
		d.invalid(fmt.Sprintf("This may have at most %d bytes and has %d.", d.limits.MaxPayload, len(raw)))
		return nil, false
	}
	return bytes.Clone(raw), d.err == nil
}
