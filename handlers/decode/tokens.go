package decode

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// The bounds of what is read and of what is said about it.
const (
	maxDepth        = 64   // nesting of arrays and objects, the document itself included
	maxNumberBytes  = 64   // length of a number literal
	maxMembers      = 4000 // of one object: names are compared with each other
	maxAllMembers   = 50_000
	maxElements     = 50_000 // of all arrays that are the client's own
	minExponent     = -324   // of the least float64: below it a database is not sure to hold the number
	maxPointerBytes = 256
	maxGuesses      = 50 // suggestions for wrong names in one body
	maxCanonical    = 64 << 10
)

// These end the reading of what is JSON.
var (
	errTooDeep   = errors.New("nested too deeply")
	errNotObject = errors.New("not an object")
	errTooMany   = errors.New("too many members or elements")
)

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
		d.countName(length)
	}
	return v
}

// countName counts the member whose name was read, the last one of the length names and
// values of its object so far. Too many end the reading.
func (d *decoder) countName(length int64) {
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

// null reads a null, if one comes next.
func (d *decoder) null() bool {
	if d.err != nil || d.json.PeekKind() != 'n' {
		return false
	}
	d.value()
	return d.err == nil
}

// begins reports whether a value of the given kind comes next; false if it is
// of another kind, and refused.
func (d *decoder) begins(kind jsontext.Kind, want string) bool {
	if d.err != nil || d.json.PeekKind() == kind {
		return d.err == nil
	}
	d.tree()
	d.wrongType(want)
	return false
}

func (d *decoder) wrongType(want string) {
	if d.err == nil {
		d.malformed("This must be " + want + ".")
	}
}

// tree reads any value, checking all that is inside, and gives its text as
// sent, a part of the body.
func (d *decoder) tree() []byte {
	from, outside := d.json.InputOffset(), d.json.StackDepth()
	for d.err == nil {
		d.node()
		if d.err == nil && d.json.StackDepth() == outside {
			return d.sentSince(from)
		}
	}
	return nil
}

// sentSince gives the text of the value that was read from an offset on.
func (d *decoder) sentSince(from int64) []byte {
	return bytes.TrimLeft(d.body[from:d.json.InputOffset()], ",: \t\r\n")
}

// node reads one step of a tree: a name, a value that is not composed, or
// the start or end of one that is.
func (d *decoder) node() {
	kind := d.json.PeekKind()
	switch {
	case kind == '}', kind == ']':
		d.token()
		return
	case d.element():
		return
	case kind == '{', kind == '[':
		if d.token(); d.err == nil && d.json.StackDepth() > maxDepth {
			d.malformed(tooDeep)
			d.err = errTooDeep
		}
		return
	}
	switch raw := d.value(); {
	case d.err != nil:
	case kind == '"' && hasNUL(raw):
		d.malformed(nulRefused)
	case kind == '0' && !isBounded(raw):
		d.malformed(numberRefused)
	}
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
func unquote(raw jsontext.Value) string { return string(unquoted(raw)) }

// unquoted is unquote without a copy, if that is possible.
func unquoted(raw jsontext.Value) []byte {
	switch {
	case len(raw) < 2:
		return nil
	case bytes.IndexByte(raw, '\\') < 0:
		return raw[1 : len(raw)-1]
	}
	text, _ := jsontext.AppendUnquote(nil, raw) // valid: the decoder has read it
	return text
}

// hasNUL reports whether a JSON string has an escaped NUL; JSON allows no
// other. Storage refuses it in text.
func hasNUL(raw []byte) bool {
	return bytes.Contains(raw, []byte(`\u0000`)) && bytes.IndexByte(unquoted(raw), 0) >= 0
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
