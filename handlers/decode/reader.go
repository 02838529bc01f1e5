// Package decode reads the JSON bodies of requests. The reader checks the JSON text, and the values against the schemas of the OpenAPI
// documents. Each kind of body has a function that checks the rest.
package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

const (
	maxDepth        = 64   // nesting of arrays and objects, including the body
	maxNumberBytes  = 64   // length of a number literal
	maxMembers      = 4000 // members of one object
	maxAllMembers   = 50_000
	maxElements     = 50_000 // elements of all arrays of the body together
	maxOuter        = 64     // members of the outermost object; enough for all valid bodies
	maxFound        = 2000   // findings that are stored; further findings are only counted
	minExponent     = -324   // exponent of the smallest float64; databases may refuse smaller numbers
	maxPointerBytes = 256
	maxGuesses      = 50 // suggestions per body for wrong names
	maxCanonical    = 64 << 10
)

var (
	nulRefused      = "The character NUL (\\u0000) is not allowed."
	tooDeep         = fmt.Sprintf("The body may be nested %d levels deep at most.", maxDepth)
	tooManyMembers  = fmt.Sprintf("An object may have at most %s members.", job.Grouped(maxMembers))
	tooManyInAll    = fmt.Sprintf("All objects of the body together may have at most %s members.", job.Grouped(maxAllMembers))
	tooManyElements = fmt.Sprintf("All arrays of the body together may have at most %s elements.", job.Grouped(maxElements))
	numberRefused   = fmt.Sprintf("Numbers may have at most %d characters, and must fit a double: at most 1.7976931348623157e308, "+
		"with exponents of at least %d.", maxNumberBytes, minExponent)

	errRefused = errors.New("the body was not read completely")
)

// Limits are the server's limits for jobs.
type Limits struct {
	MaxPayload int  // bytes of params or event data
	TestBed    bool // allows the work kind CUSTOM
}

// reader reads a JSON text strictly, and checks it against a schema at the same time. It refuses duplicate names, invalid UTF-8, NUL
// characters, trailing data, deep nesting and huge numbers. Its running time is proportional to the length of the text.
type reader struct {
	findings
	schemas *Schemas
	limits  Limits
	base    string // JSON Pointer of `body` in the request's body, such as /jobs/3 for an item of a batch
	json    *jsontext.Decoder
	input   bytes.Buffer
	body    []byte
	outer   []member // members of the outermost object
	items   [][]byte // raw JSON of each job of a batch
	path    []step
	found   []finding
	place   int      // index of the current outermost member
	wrong   []string // names of outer members with findings
	named   int      // number of members so far
	listed  int      // number of array elements so far
	guess   int      // suggestions left
	err     error    // error that stopped the reading; nil: none
	types   *jsonv2.Unmarshalers
}

type member struct {
	name  string
	value []byte
}

type step struct {
	name  string
	index int // -1: an object member
}

var readers sync.Pool

// Call `done` to return the reader to the pool.
func newReader(s *Schemas, body []byte, limits Limits) *reader {
	r, _ := readers.Get().(*reader)
	if r == nil {
		r = &reader{json: new(jsontext.Decoder)}
		r.types = r.unmarshalers()
	}
	r.reset(body)
	r.schemas, r.limits, r.guess, r.limit = s, limits, maxGuesses, job.MaxViolations
	return r
}

func (r *reader) reset(body []byte) {
	clear(r.outer)
	clear(r.found)
	*r = reader{json: r.json, types: r.types, outer: r.outer[:0], path: r.path[:0], found: r.found[:0], body: body}
	r.begin(body)
}

func (r *reader) begin(text []byte, options ...jsontext.Options) {
	r.input = *bytes.NewBuffer(text)
	r.json.Reset(&r.input, options...)
}

func (r *reader) done() {
	r.reset(nil)
	readers.Put(r)
}

func (s *Schemas) read(schema string, body []byte, v any, checks ...func(r *reader)) error {
	r := newReader(s, body, Limits{})
	defer r.done()
	r.document(schema, v)
	for _, check := range checks {
		check(r)
	}
	return r.result()
}

// document checks the whole body against a schema, and decodes it into v. It does not decode outer members that have findings.
func (r *reader) document(schema string, v any) {
	r.value(r.schemas.named()[schema])
	if r.err == nil {
		if _, err := r.json.ReadToken(); !errors.Is(err, io.EOF) {
			r.fail("", "The body must be one JSON value, but more text follows it.")
		}
	}
	if r.err != nil {
		return
	}
	r.recordFindings()
	text := r.body
	switch {
	case len(r.wrong) > 0 && len(r.outer) == 0: // the body is an array with invalid elements
		return
	case len(r.wrong) > 0:
		text = r.without(r.wrong...)
	}
	r.begin(text, jsontext.AllowDuplicateNames(true)) // duplicates were refused before
	err := jsonv2.UnmarshalDecode(r.json, v, jsonv2.WithUnmarshalers(r.types), jsonv2.MatchCaseInsensitiveNames(true))
	if err != nil && r.fine() {
		r.malformedAt(r.base, "Cannot read the values: "+job.PlainText(err.Error(), maxPointerBytes)+".")
	}
}

func (r *reader) without(names ...string) []byte {
	if !slices.ContainsFunc(r.outer, func(m member) bool { return slices.Contains(names, m.name) }) {
		return bytes.Clone(r.body)
	}
	text := append(make([]byte, 0, len(r.body)), '{')
	for _, m := range r.outer {
		if !slices.Contains(names, m.name) {
			text, _ = jsontext.AppendQuote(text, m.name)
			text = append(append(append(text, ':'), m.value...), ',')
		}
	}
	return append(bytes.TrimSuffix(text, []byte{','}), '}')
}

// value reads a value and checks it against the schema. A nil schema allows any value.
func (r *reader) value(s *schema) {
	kind := r.json.PeekKind()
	if s != nil && !s.allows(kind) {
		r.wrongType(s, kind)
		s = nil
	}
	isRaw := s != nil && s.Raw
	switch {
	case kind == '[' && isRaw:
		r.elements()
		return
	case kind == '[':
		r.array(s)
		return
	case kind == '{' && !isRaw:
		r.object(s)
		return
	}
	raw := r.scalar()
	switch {
	case r.err != nil:
	case kind == '"' && hasNUL(raw):
		r.fail(r.here(), nulRefused)
	case kind == '0' && !isBounded(raw):
		r.fail(r.here(), numberRefused)
	case s == nil:
	case kind == '"':
		r.checkText(s, raw)
	case kind == '0':
		r.checkNumber(s, raw)
	}
}

func (r *reader) object(s *schema) {
	outer := r.json.StackDepth() == 0
	r.token()
	var seen uint64 // a bit for each property that the object has
	count := 0
	for r.err == nil && r.json.PeekKind() != '}' {
		raw := r.scalar()
		count++
		r.named++
		switch {
		case r.err != nil:
			return
		case hasNUL(raw):
			r.fail(r.here(), nulRefused)
		case count > maxMembers:
			r.fail(r.here(), tooManyMembers)
		case r.named > maxAllMembers:
			r.fail(r.here(), tooManyInAll)
		case s == nil:
			r.value(nil)
		default:
			seen |= r.member(s, unquoted(raw), outer)
		}
	}
	if r.token(); r.err == nil && s != nil {
		r.checkMembers(s, seen, count)
	}
}

// member reads a member of an object that has a schema. It returns the bit that marks the property as seen, or 0 for an unknown name.
func (r *reader) member(s *schema, text []byte, outer bool) (bit uint64) {
	p := s.Properties[string(text)]
	at := step{index: -1}
	if p != nil {
		at.name, bit = p.name, 1<<p.index
	} else {
		at.name = string(text)
	}
	r.path = append(r.path, at)
	if p == nil {
		r.checkName(s, at.name)
	}
	from := r.json.InputOffset()
	r.value(p)
	r.path = r.path[:len(r.path)-1]
	if outer && r.err == nil {
		if r.place++; len(r.outer) < maxOuter {
			r.outer = append(r.outer, member{at.name, bytes.TrimLeft(r.body[from:r.json.InputOffset()], ": \t\r\n")})
		}
	}
	return bit
}

func (r *reader) elements() {
	r.items = [][]byte{}
	for r.token(); r.err == nil && r.json.PeekKind() != ']'; {
		n := len(r.scalar())
		if end := int(r.json.InputOffset()); len(r.items) <= job.MaxBatchItems {
			r.items = append(r.items, r.body[end-n:end])
		}
	}
	r.token()
}

func (r *reader) array(s *schema) {
	var items *schema
	if s != nil {
		items = s.Items
	}
	count := 0
	r.path = append(r.path, step{})
	for r.token(); r.err == nil && r.json.PeekKind() != ']'; count++ {
		r.path[len(r.path)-1].index = count
		r.value(items)
		if r.listed++; r.listed > maxElements && r.err == nil {
			r.fail(r.here(), tooManyElements)
		}
	}
	r.path = r.path[:len(r.path)-1]
	if r.token(); r.err == nil && s != nil {
		r.checkCount(s, count)
	}
}

func (r *reader) token() {
	if r.err != nil {
		return
	}
	if _, err := r.json.ReadToken(); err != nil {
		r.stop(err)
	} else if r.json.StackDepth() > maxDepth {
		r.fail(r.here(), tooDeep)
	}
}

// scalar reads a name or a value. The result is valid until the next read.
func (r *reader) scalar() []byte {
	if r.err != nil {
		return nil
	}
	v, err := r.json.ReadValue()
	if err != nil {
		r.stop(err)
	}
	return v
}

func (r *reader) here() string { return shorten(jsontext.Pointer(r.base) + r.json.StackPointer()) }

func (r *reader) fail(at, detail string) {
	if r.err == nil {
		r.found, r.more = nil, 0
		r.malformedAt(at, detail)
		r.err = errRefused
	}
}

func (r *reader) stop(err error) {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		r.fail("", "The JSON text ends too early.")
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		r.fail(shorten(syntax.JSONPointer), "The object has this member twice.")
	case errors.As(err, &syntax):
		r.fail(shorten(syntax.JSONPointer), fmt.Sprintf("Not valid JSON at byte %d: %v.", syntax.ByteOffset, syntax.Err))
	default:
		r.fail("", "The JSON text cannot be read.")
	}
}
