// Package decode reads the JSON bodies of requests strictly, and says of each
// mistake where it is.
package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

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

// decoder reads one JSON object strictly: duplicate and unknown names, invalid
// UTF-8, NUL characters, trailing data, deep nesting and monstrous numbers are
// errors. It goes on after an error as long as the text is JSON at all, so
// that the client gets all errors at once. Every string it returns is a
// copy. What it does for a fault is bounded, however long names are, and faults
// beyond the limit it only counts: see pointer.
type decoder struct {
	base   string // pointer to the value that is read, in the body that it is a part of
	json   *jsontext.Decoder
	input  bytes.Buffer // what json reads: body
	body   []byte
	names  [maxDepth + 1]nameSpan // by depth, the name read last
	outer  []outerMember          // of the body's object, those that are known
	limit  int                    // of each list of violations
	more   int                    // violations beyond it
	named  int                    // members so far
	listed int                    // elements so far
	guess  int                    // suggestions that may still be looked for
	key    string                 // for idempotency, of the body
	err    error                  // ends the reading
	form   []job.Violation        // the structure is wrong: RFA_REQUEST_MALFORMED
	values []job.Violation        // a value is wrong: RFA_JOB_VALIDATION_FAILED
}

// outerMember is a member of the body's object, with its value as sent.
type outerMember struct {
	name  string
	value []byte
}

// nameSpan is where a name stands in the body, its quotes included.
type nameSpan struct{ from, to int64 }

// member is one of those that an object may have, and what reads its value.
type member struct {
	name     string
	read     func()
	unlisted bool // it is known only to be refused with a reason of its own
}

func newDecoder(body []byte) *decoder {
	d := &decoder{json: new(jsontext.Decoder)}
	d.reset(body)
	return d
}

// reset begins anew with another body. What was found in the one before stays
// with whoever took it.
func (d *decoder) reset(body []byte) {
	d.input = *bytes.NewBuffer(body)
	d.json.Reset(&d.input)
	clear(d.outer)
	d.body, d.outer, d.limit, d.guess = body, d.outer[:0], job.MaxViolations, maxGuesses
	d.key, d.err, d.form, d.values, d.more, d.named, d.listed = "", nil, nil, nil, 0, 0, 0
}

// violations gives all that was found, what is wrong with the structure first.
func (d *decoder) violations() []job.Violation { return slices.Concat(d.form, d.values) }

// findings gives all violations that are listed, the number of the others, and
// whether the structure is wrong.
func (d *decoder) findings() (all []job.Violation, unlisted int, malformed bool) {
	return d.violations(), d.more, len(d.form) > 0
}

// result gives the error for what was found, nil if that is nothing.
func (d *decoder) result() error {
	all := d.violations()
	if len(all) == 0 {
		return nil
	}
	return job.Request{Malformed: len(d.form) > 0, Unlisted: d.more}.Refusal(all)
}

// malformed records a wrong structure at the token read last.
func (d *decoder) malformed(detail string) {
	if len(d.form) < d.limit {
		d.malformedAt(d.pointer(), detail)
		return
	}
	d.more++
}

func (d *decoder) malformedAt(at, detail string) {
	if len(d.form) < d.limit {
		d.form = append(d.form, job.Violation{Pointer: at, Detail: detail})
		return
	}
	d.more++
}

// invalid records a wrong value at the token read last.
func (d *decoder) invalid(detail string) {
	if len(d.values) < d.limit {
		d.invalidAt(d.pointer(), detail)
		return
	}
	d.more++
}

func (d *decoder) invalidAt(at, detail string) {
	if len(d.values) < d.limit {
		d.values = append(d.values, job.Violation{Pointer: at, Detail: detail})
		return
	}
	d.more++
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer gives the JSON Pointer (RFC 6901) to the token read last, or to the
// nearest value around it whose pointer is not too long and can be stored. Unlike
// that of jsontext, it does not look at long names: their cost would come with every
// fault inside of them.
func (d *decoder) pointer() string {
	at := d.base
	for depth := 1; depth <= d.json.StackDepth(); depth++ {
		kind, length := d.json.StackIndex(depth)
		if length == 0 {
			break // it has just begun: it is the token itself
		}
		step := ""
		if name := d.names[depth]; kind == '[' {
			step = strconv.FormatInt(length-1, 10)
		} else if name.to-name.from <= maxPointerBytes+2 { // two quotes
			step = pointerEscapes.Replace(unquote(d.body[name.from:name.to]))
		} else {
			break
		}
		if len(at)+1+len(step) > maxPointerBytes || strings.Contains(step, "\x00") { // which storage refuses
			break
		}
		at += "/" + step
	}
	return at
}

// require records that a member of the object read last is missing.
func (d *decoder) require(present bool, name string) {
	switch {
	case present || d.err != nil:
		return
	case len(d.form) >= d.limit:
		d.more++
		return
	}
	at := d.pointer() + "/" + name
	for _, v := range d.form {
		if v.Pointer == at {
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
		d.malformedAt(shorten(syntax.JSONPointer), "This name occurs twice; an object may have each name once.")
	case errors.As(err, &syntax):
		d.malformedAt(shorten(syntax.JSONPointer), fmt.Sprintf("Not valid JSON at byte %d: %v.", syntax.ByteOffset, syntax.Err))
	default:
		d.malformedAt("", "The JSON text cannot be read.")
	}
}

func shorten(at jsontext.Pointer) string {
	for len(at) > maxPointerBytes {
		at = at.Parent()
	}
	return string(at)
}

// document reads the whole body as one object.
func (d *decoder) document(members []member) {
	if d.json.PeekKind() != '{' {
		if d.tree(); d.err == nil {
			d.malformedAt("", "The body must be a JSON object.")
			d.err = errNotObject
		}
		return
	}
	d.object(members)
	if d.err != nil {
		return
	}
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		d.malformedAt("", "The body must be one JSON object; something follows it.")
	}
}

// object reads an object that has no other members than these.
func (d *decoder) object(members []member) { d.objectOr(members, nil) }

// objectOr reads an object; other, if it is not nil, reads the values of members
// that are not known.
func (d *decoder) objectOr(members []member, other func(name string)) {
	d.token()
	var known []string
	for d.err == nil && d.json.PeekKind() != '}' {
		name := unquote(d.value())
		if d.err != nil {
			break
		}
		if i := slices.IndexFunc(members, func(m member) bool { return m.name == name }); i >= 0 {
			d.read(members[i])
			continue
		}
		if other != nil {
			other(name)
			continue
		}
		if known == nil {
			known = listed(members)
		}
		d.unknown(name, known)
		d.tree()
	}
	d.token()
}

// read reads the value of a member whose name was read.
func (d *decoder) read(m member) {
	from := d.json.InputOffset()
	m.read()
	if d.err == nil && d.json.StackDepth() == 1 {
		d.outer = append(d.outer, outerMember{m.name, d.body[from:d.json.InputOffset()]})
	}
}

// listed gives the names of the members that an object may have.
func listed(members []member) []string {
	names := make([]string, 0, len(members))
	for _, m := range members {
		if !m.unlisted {
			names = append(names, m.name)
		}
	}
	return names
}

// unknown records a member of a name that the object does not have.
func (d *decoder) unknown(name string, known []string) {
	switch {
	case len(d.form) >= d.limit:
		d.more++
	case len(known) == 0:
		d.malformed("This member is not known; the object must be empty.")
	default:
		d.malformed("This member is not known." + suggest(d, name, known) + " The object may have " + strings.Join(known, ", ") + ".")
	}
}

// suggest is DidYouMean, for so many wrong names of a body.
func suggest[T ~string](d *decoder, text string, known []T) string {
	if d.guess == 0 || len(text) > maxGuessBytes {
		return ""
	}
	d.guess--
	return DidYouMean(text, known)
}
