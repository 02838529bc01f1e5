// Package decode reads the JSON bodies of requests strictly, and says of each
// mistake where it is. Each kind of body is described by a table of its members,
// see member; what they may be is said by values, see value.
package decode

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// decoder reads one JSON object strictly: duplicate and unknown names, invalid
// UTF-8, NUL characters, trailing data, deep nesting and monstrous numbers are
// errors. It goes on after an error as long as the text is JSON at all, so
// that the client gets all errors at once. Every string it returns is a
// copy. What it does for a fault is bounded, however long names are, and faults
// beyond the limit it only counts: see pointer.
type decoder struct {
	findings
	limits Limits
	base   string // pointer to the value that is read, in the body that it is a part of
	json   *jsontext.Decoder
	input  bytes.Buffer // what json reads: body
	body   []byte
	names  [maxDepth + 1]nameSpan // by depth, the name read last
	outer  []outerMember          // of the body's object, those that are known
	named  int                    // members so far
	listed int                    // elements so far
	guess  int                    // suggestions that may still be looked for
	key    string                 // for idempotency, of the body
	err    error                  // ends the reading
}

// Limits are those of the server for the work of jobs.
type Limits struct {
	MaxPayload int  // bytes of params or event data
	TestBed    bool // CUSTOM is a work kind
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
	name string
	need need
	read func(*decoder)
}

// need says what becomes of a member that is absent or null. At most 64 members
// make an object.
type need int

const (
	optional  need = iota // null stands for an absent member
	required              // it must be there, and not be null
	kept                  // of a merge patch (RFC 7396): null is refused
	removable             // of a merge patch: null is for the reader
	hidden                // it is known only to be refused with a reason of its own, unless it is null
)

func newDecoder(body []byte, limits Limits) *decoder {
	d := &decoder{json: new(jsontext.Decoder)}
	d.reset(body, limits)
	return d
}

// reset begins anew with another body. It does not change what was found in the
// one before.
func (d *decoder) reset(body []byte, limits Limits) {
	d.input = *bytes.NewBuffer(body)
	d.json.Reset(&d.input)
	clear(d.outer)
	d.body, d.limits, d.outer, d.guess = body, limits, d.outer[:0], maxGuesses
	d.key, d.err, d.findings, d.named, d.listed = "", nil, findings{limit: job.MaxViolations}, 0, 0
}

// readBody reads a whole body that is an object with these members.
func readBody(body []byte, members []member) *decoder {
	d := newDecoder(body, Limits{})
	d.document(members)
	return d
}

// orEmpty gives the body that stands for none.
func orEmpty(body []byte) []byte {
	if len(body) == 0 {
		return []byte("{}")
	}
	return body
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
	given := d.readMembers(members, nil)
	d.end("The body must be one JSON object; something follows it.")
	d.require(members, given)
}

// end refuses what follows the value that was read.
func (d *decoder) end(detail string) {
	if d.err != nil {
		return
	}
	if _, err := d.json.ReadToken(); !errors.Is(err, io.EOF) {
		d.malformedAt("", detail)
	}
}

// mergePatch reads the whole body as a merge patch (RFC 7396) of at least one member.
func (d *decoder) mergePatch(members []member) {
	d.document(members)
	if d.err == nil && len(d.outer) == 0 && len(d.form) == 0 {
		d.malformedAt("", "The object must have at least one of "+strings.Join(listed(members), ", ")+".")
	}
}

// object reads an object that has no other members than these; false if it is
// something else, and refused.
func (d *decoder) object(members []member) bool { return d.objectOr(members, nil) }

// objectOr reads an object; other, if it is not nil, reads the values of members
// that are not known.
func (d *decoder) objectOr(members []member, other func(name string)) bool {
	if !d.begins('{', "an object") {
		return false
	}
	d.require(members, d.readMembers(members, other))
	return true
}

// readMembers reads the members of an object, and its end. Given has a bit for each of
// those that are there and not null.
func (d *decoder) readMembers(members []member, other func(name string)) (given uint64) {
	d.token()
	for d.err == nil && d.json.PeekKind() != '}' {
		name := unquoted(d.value()) // until the next read
		if d.err != nil {
			break
		}
		switch i := slices.IndexFunc(members, func(m member) bool { return m.name == string(name) }); {
		case i >= 0:
			if d.readMember(&members[i]) {
				given |= 1 << i
			}
		case other != nil:
			other(string(name))
		default:
			d.unknown(string(name), members)
			d.tree()
		}
	}
	d.token()
	return given
}

// readMember reads the value of a member whose name was read; false if it is null.
func (d *decoder) readMember(m *member) bool {
	from := d.json.InputOffset()
	isNull := d.json.PeekKind() == 'n'
	switch {
	case !isNull || m.need == removable:
		m.read(d)
	case d.null() && m.need == kept:
		d.malformed("Null is not allowed: this member cannot be removed. Leave it out to keep it as it is.")
	}
	if d.err == nil && d.json.StackDepth() == 1 {
		d.outer = append(d.outer, outerMember{m.name, d.sentSince(from)})
	}
	return !isNull
}

// require records the members that are missing in the object read last.
func (d *decoder) require(members []member, given uint64) {
	for i := range members {
		if members[i].need == required && given&(1<<i) == 0 && d.err == nil {
			d.malformedAt(d.pointer()+"/"+members[i].name, "This member is required.")
		}
	}
}

// unknown records a member of a name that the object does not have.
func (d *decoder) unknown(name string, members []member) {
	if len(d.form) >= d.limit {
		d.more++
		return
	}
	detail := "This member is not known; the object must be empty."
	if known := listed(members); len(known) > 0 {
		detail = "This member is not known." + suggest(d, name, known) + " The object may have " + strings.Join(known, ", ") + "."
	}
	d.malformed(detail)
}

// listed gives the names of the members that an object may have.
func listed(members []member) []string {
	names := make([]string, 0, len(members))
	for _, m := range members {
		if m.need != hidden {
			names = append(names, m.name)
		}
	}
	return names
}

// inside reads text, a value of the body that was read before and stands at a pointer.
func (d *decoder) inside(text []byte, at string, read func(*decoder)) {
	in := newDecoder(text, Limits{MaxPayload: len(text), TestBed: d.limits.TestBed})
	in.base, in.guess = at, d.guess
	read(in)
	d.guess = in.guess
	d.add(in.findings)
}
