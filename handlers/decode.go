package handlers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// The bounds of what is read and of what is said about it.
const (
	maxDepth        = 64  // nesting of arrays and objects, the document itself included
	maxNumberBytes  = 64  // length of a number literal
	maxExponent     = 300 // beyond it neither float64 nor a database is sure to hold the number
	maxViolations   = 50
	maxPointerBytes = 256
)

// decoder reads one JSON object strictly: duplicate and unknown names, invalid
// UTF-8, NUL characters, trailing data, deep nesting and monstrous numbers are
// errors. It goes on after an error as long as the text is JSON at all, so
// that the client is told of everything at once. Every string it returns is a
// copy.
type decoder struct {
	json   *jsontext.Decoder
	body   []byte
	nameAt int64           // where the name read last begins
	err    error           // ends the reading
	form   []job.Violation // the structure is wrong: RFA_REQUEST_MALFORMED
	values []job.Violation // a value is wrong: RFA_JOB_VALIDATION_FAILED
}

func newDecoder(body []byte) *decoder {
	return &decoder{json: jsontext.NewDecoder(bytes.NewBuffer(body)), body: body}
}

// result gives the error for a wrong structure, with all violations of both
// kinds, and nil if there is none.
func (d *decoder) result() error {
	if len(d.form) == 0 {
		return nil
	}
	err := job.Errorf(job.CodeMalformed, "The body is not of the expected form.")
	err.Violations = slices.Concat(d.form, d.values)
	return err
}

// malformed notes a wrong structure at the token read last.
func (d *decoder) malformed(detail string) { d.malformedAt(d.json.StackPointer(), detail) }

func (d *decoder) malformedAt(at jsontext.Pointer, detail string) {
	d.form = d.note(d.form, at, detail)
}

// invalid notes a wrong value at the token read last.
func (d *decoder) invalid(detail string) {
	d.values = d.note(d.values, d.json.StackPointer(), detail)
}

func (d *decoder) note(list []job.Violation, at jsontext.Pointer, detail string) []job.Violation {
	if len(list) >= maxViolations {
		return list
	}
	for len(at) > maxPointerBytes {
		at = at.Parent()
	}
	return append(list, job.Violation{Pointer: string(at), Detail: detail})
}

// require notes that a required member is missing.
func (d *decoder) require(present bool, at jsontext.Pointer) {
	if present || d.err != nil {
		return
	}
	for _, v := range d.form {
		if v.Pointer == string(at) {
			return // it is there, but of the wrong type
		}
	}
	d.malformedAt(at, "This member is required.")
}

// stop ends the reading at text that is not JSON.
func (d *decoder) stop(err error) {
	if err == nil || d.err != nil {
		return
	}
	d.err = err
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		d.malformedAt("", "The JSON text ends too early.")
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		d.malformedAt(syntax.JSONPointer, "This name occurs twice.")
	case errors.As(err, &syntax):
		d.malformedAt(syntax.JSONPointer, fmt.Sprintf("Not valid JSON at byte %d: %v.", syntax.ByteOffset, syntax.Err))
	default:
		d.malformedAt("", "The JSON text cannot be read.")
	}
}

// document reads the whole body as one object: see object.
func (d *decoder) document(member func(name string) bool) {
	if d.json.PeekKind() != '{' {
		if d.tree(); d.err == nil {
			d.malformedAt("", "The body must be a JSON object.")
			d.err = errNotObject
		}
		return
	}
	d.object(member)
	if d.err != nil {
		return
	}
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		d.malformedAt("", "Something follows the JSON object.")
	}
}

// object reads an object. Each name goes to member, which reads the value, or
// reports false if it does not know the name.
func (d *decoder) object(member func(name string) bool) {
	d.token()
	for d.err == nil && d.json.PeekKind() != '}' {
		raw := d.value()
		d.nameAt = d.json.InputOffset() - int64(len(raw))
		name := unquote(raw)
		if d.err == nil && !member(name) {
			d.malformed("This member is not known.")
			d.tree()
		}
	}
	d.token()
}

// token reads the start or end of an object or array.
func (d *decoder) token() {
	if d.err == nil {
		_, err := d.json.ReadToken()
		d.stop(err)
	}
}

// value reads a name or a value as it stands; it is valid until the next read.
func (d *decoder) value() jsontext.Value {
	if d.err != nil {
		return nil
	}
	v, err := d.json.ReadValue()
	d.stop(err)
	return v
}

// null reads a null, which everywhere stands for an absent member.
func (d *decoder) null() bool {
	if d.err != nil || d.json.PeekKind() != 'n' {
		return false
	}
	d.value()
	return d.err == nil
}

// text reads a string; false if it is absent or not a string.
func (d *decoder) text() (string, bool) {
	if d.err != nil || d.null() {
		return "", false
	}
	if d.json.PeekKind() != '"' {
		d.tree()
		d.wrongType("a string")
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

const nulRefused = "The character NUL (\\u0000) is not allowed."

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
	switch d.json.PeekKind() {
	case '{', '[':
		d.token()
		if d.err == nil && d.json.StackDepth() > maxDepth {
			d.malformed(fmt.Sprintf("The body is nested deeper than %d levels.", maxDepth))
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
	case kind == '0' && !isModest(raw):
		d.malformed(fmt.Sprintf("Numbers may have %d characters and exponents up to %d.", maxNumberBytes, maxExponent))
	}
	return len(raw)
}

// These end the reading of what is JSON.
var (
	errTooDeep   = errors.New("nested too deeply")
	errNotObject = errors.New("not an object")
)

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
	const nul = `\u0000`
	if !bytes.Contains(raw, []byte(nul)) {
		return false
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		if bytes.HasPrefix(raw[i:], []byte(nul)) {
			return true
		}
		i++ // the escaped character, which may be a backslash
	}
	return false
}

// isModest reports whether a number is one that float64 and the database can
// hold, at least nearly.
func isModest(raw []byte) bool {
	if len(raw) > maxNumberBytes {
		return false
	}
	e := bytes.IndexAny(raw, "eE")
	if e < 0 {
		return true
	}
	exponent, err := strconv.Atoi(string(raw[e+1:]))
	if err != nil || exponent > maxExponent || exponent < -maxExponent {
		return false
	}
	_, err = strconv.ParseFloat(string(raw), 64)
	return err == nil
}
