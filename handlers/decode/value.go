package decode

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// token reads the start or end of an object or array.
func (d *decoder) token() {
	if d.err == nil {
		_, err := d.json.ReadToken()
		d.stop(err)
	}
}

// value reads a name, or a value that is not composed, as it stands; it is
// valid until the next read.
func (d *decoder) value() jsontext.Value {
	if d.err != nil {
		return nil
	}
	v, err := d.json.ReadValue()
	d.stop(err)
	depth := d.json.StackDepth()
	if kind, length := d.json.StackIndex(depth); kind == '{' && length%2 == 1 && err == nil {
		end := d.json.InputOffset()
		d.names[depth] = nameSpan{end - int64(len(v)), end}
		d.member(length)
	}
	return v
}

// member counts the member whose name was read, the last one of the length names and
// values of its object so far. Too many end the reading.
func (d *decoder) member(length int64) {
	d.named++
	switch {
	case length/2 >= maxMembers:
		d.malformed(tooManyMembers)
	case d.named > maxAllMembers:
		d.malformed(tooManyInAll)
	default:
		return
	}
	d.err = errTooMany
}

// null reads a null, which stands for an absent member.
func (d *decoder) null() bool {
	if d.err != nil || d.json.PeekKind() != 'n' {
		return false
	}
	d.value()
	return d.err == nil
}

// begins reports whether a value of the given kind comes next; false if it is
// absent, or of another kind and refused.
func (d *decoder) begins(kind jsontext.Kind, want string) bool {
	if d.err != nil || d.null() {
		return false
	}
	if d.json.PeekKind() != kind {
		d.tree()
		d.wrongType(want)
		return false
	}
	return true
}

// text reads a string; false if it is absent or not a string.
func (d *decoder) text() (string, bool) {
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

// word reads a string that must satisfy valid; "" if it is absent or does not.
func (d *decoder) word(valid func(string) bool, detail string) string {
	text, ok := d.text()
	if ok && !valid(text) {
		d.invalid(detail)
		return ""
	}
	return text
}

// time reads a time, nil if it is wrong; false if it is absent or not a string.
func (d *decoder) time() (at *time.Time, present bool) {
	text, ok := d.text()
	if !ok {
		return nil, false
	}
	t, err := job.ParseTime(text)
	if err != nil {
		d.invalid("This must be " + TimeForm + ".")
		return nil, true
	}
	return &t, true
}

// url reads the URL of a callback or webhook, "" if it is wrong; false if it is
// absent or not a string.
func (d *decoder) url() (string, bool) {
	text, ok := d.text()
	if !ok {
		return "", false
	}
	if wrong := checkURL(text); wrong != "" {
		d.invalid(wrong)
		return "", true
	}
	return text, true
}

// array reads an array; item reads each of its values, of which none may be null.
func (d *decoder) array(item func(i int)) (length int) {
	d.token()
	for ; d.err == nil && d.json.PeekKind() != ']'; length++ {
		if d.null() {
			d.malformed("Null is not allowed in this array.")
			continue
		}
		item(length)
	}
	d.token()
	return length
}

// notNull makes a member of a merge patch (RFC 7396) one that cannot be removed.
func (d *decoder) notNull(read func()) func() {
	return func() {
		if d.null() {
			d.malformed("Null is not allowed: this member cannot be removed. Leave it out to keep it as it is.")
			return
		}
		read()
	}
}

// refused reads a member that may be null only; the detail says why.
func (d *decoder) refused(detail string) func() {
	return func() {
		if !d.null() {
			d.tree()
			d.malformed(detail)
		}
	}
}

// id reads an id, the zero id if it is absent or wrong; false if it is absent or not a string.
func (d *decoder) id() (job.ID, bool) {
	text, ok := d.text()
	id, err := job.ParseID(text)
	if ok && (err != nil || id.IsZero()) {
		d.invalid("This must be an id, such as 0190a1b2-c3d4-7000-8000-000000000b01.")
	}
	return id, ok
}

// boolean reads a truth value; absent is false.
func (d *decoder) boolean() bool {
	if d.err != nil || d.null() {
		return false
	}
	kind := d.json.PeekKind()
	d.tree()
	if kind != 't' && kind != 'f' {
		d.wrongType("true or false")
	}
	return kind == 't'
}

func (d *decoder) wrongType(want string) {
	if d.err == nil {
		d.malformed("This must be " + want + ".")
	}
}

// What is wrong with values of any kind.
var (
	nulRefused      = "The character NUL (\\u0000) is not allowed."
	tooDeep         = fmt.Sprintf("The body may be nested %d levels deep at most.", maxDepth)
	tooManyMembers  = fmt.Sprintf("An object may have at most %s members.", job.Grouped(maxMembers))
	tooManyInAll    = fmt.Sprintf("All objects of the body together may have at most %s members.", job.Grouped(maxAllMembers))
	tooManyElements = fmt.Sprintf("All arrays of the body together may have at most %s elements.", job.Grouped(maxElements))
	numberRefused   = fmt.Sprintf("Numbers may have at most %d characters, and must be those of a double: up to 1.7976931348623157e308, "+
		"and with exponents from %d.", maxNumberBytes, minExponent)
)

// tree reads any value, checking all that is inside, and gives its text as
// sent, a part of the body.
func (d *decoder) tree() []byte {
	start, outside := -1, d.json.StackDepth()
	for d.err == nil {
		size := d.node()
		if start < 0 {
			start = int(d.json.InputOffset()) - size
		}
		if d.err == nil && d.json.StackDepth() == outside {
			return d.body[start:d.json.InputOffset()]
		}
	}
	return nil
}

// node reads one step of a tree and gives its length: a name, a value that is
// not composed, or an end of one that is.
func (d *decoder) node() int {
	kind := d.json.PeekKind()
	if kind != ']' && d.element() {
		return 0
	}
	switch kind {
	case '{', '[':
		d.token()
		if d.err == nil && d.json.StackDepth() > maxDepth {
			d.malformed(tooDeep)
			d.err = errTooDeep
		}
		return 1
	case '}', ']':
		d.token()
		return 1
	}
	raw := d.value()
	if d.err != nil {
		return 0
	}
	switch kind := raw.Kind(); {
	case kind == '"' && hasNUL(raw):
		d.malformed(nulRefused)
	case kind == '0' && !isBounded(raw):
		d.malformed(numberRefused)
	}
	return len(raw)
}

// element counts the element of an array that comes next, if one does. It reports
// whether that is one too many, which ends the reading.
func (d *decoder) element() bool {
	if container, _ := d.json.StackIndex(d.json.StackDepth()); container != '[' {
		return false
	}
	if d.listed++; d.listed <= maxElements {
		return false
	}
	d.malformed(tooManyElements)
	d.err = errTooMany
	return true
}

// unquote gives the string that a JSON string stands for.
func unquote(raw jsontext.Value) string {
	if len(raw) < 2 {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // valid: the decoder has read it
	return string(text)
}

// hasNUL reports whether a JSON string has an escaped NUL; JSON allows no
// other. Storage refuses it in text.
func hasNUL(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\u0000`)) && strings.Contains(unquote(raw), "\x00")
}

// isBounded reports whether a number is one that float64 can hold, at least nearly;
// the database can then.
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
