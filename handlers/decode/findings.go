package decode

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// findings are what is wrong with a body.
type findings struct {
	form   []job.Violation // the structure is wrong: RFA_REQUEST_MALFORMED
	values []job.Violation // a value is wrong: RFA_JOB_VALIDATION_FAILED
	limit  int             // of each list
	more   int             // violations beyond it
}

// all gives all violations that are listed, of the structure first.
func (f *findings) all() []job.Violation { return slices.Concat(f.form, f.values) }

// count is how much was found.
func (f *findings) count() int { return len(f.form) + len(f.values) + f.more }

// request gives what a request says about what was found in it.
func (f *findings) request() (all []job.Violation, unlisted int, malformed bool) {
	return f.all(), f.more, len(f.form) > 0
}

// result gives the error for what was found, nil if that is nothing.
func (f *findings) result() error {
	if f.count() == 0 {
		return nil
	}
	return job.Request{Malformed: len(f.form) > 0, Unlisted: f.more}.Refusal(f.all())
}

func (f *findings) malformedAt(at, detail string) { f.record(&f.form, at, detail) }

func (f *findings) invalidAt(at, detail string) { f.record(&f.values, at, detail) }

func (f *findings) record(list *[]job.Violation, at, detail string) {
	if len(*list) < f.limit {
		*list = append(*list, job.Violation{Pointer: at, Detail: detail})
		return
	}
	f.more++
}

// add records what was found elsewhere.
func (f *findings) add(other findings) {
	for _, v := range other.form {
		f.malformedAt(v.Pointer, v.Detail)
	}
	for _, v := range other.values {
		f.invalidAt(v.Pointer, v.Detail)
	}
	f.more += other.more
}

// malformed records a wrong structure at the token read last.
func (d *decoder) malformed(detail string) { d.here(&d.form, detail) }

// invalid records a wrong value at the token read last.
func (d *decoder) invalid(detail string) { d.here(&d.values, detail) }

func (d *decoder) here(list *[]job.Violation, detail string) {
	at := ""
	if len(*list) < d.limit { // else it is only counted
		at = d.pointer()
	}
	d.record(list, at, detail)
}

// fine reports whether the body was read so far without any mistake.
func (d *decoder) fine() bool { return d.err == nil && d.count() == 0 }

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
