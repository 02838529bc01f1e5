package decode

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// findings are the mistakes in a body.
type findings struct {
	form   []job.Violation // the structure is wrong: RFA_REQUEST_MALFORMED
	values []job.Violation // a value is wrong: RFA_JOB_VALIDATION_FAILED
	limit  int             // of each list
	more   int             // violations beyond it
}

// all returns the listed violations, those of the structure first.
func (f *findings) all() []job.Violation { return slices.Concat(f.form, f.values) }

func (f *findings) count() int { return len(f.form) + len(f.values) + f.more }

// request returns the findings in the form of a request's members.
func (f *findings) request() (all []job.Violation, unlisted int, malformed bool) {
	return f.all(), f.more, len(f.form) > 0
}

// result returns the error for the findings, nil if there are none.
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

// add records the findings about a part of the body.
func (f *findings) add(other *findings) {
	for _, v := range other.form {
		f.malformedAt(v.Pointer, v.Detail)
	}
	for _, v := range other.values {
		f.invalidAt(v.Pointer, v.Detail)
	}
	f.more += other.more
}

// fine reports whether no mistake was found so far.
func (r *reader) fine() bool { return r.err == nil && r.count() == 0 }

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer returns the JSON Pointer (RFC 6901) to the value at a path below another, or to the nearest value around it whose
// pointer is short and can be stored.
func pointer(at string, path ...string) string {
	for _, name := range path {
		if len(at)+1+len(name) > maxPointerBytes || strings.Contains(name, "\x00") {
			break
		}
		if name = pointerEscapes.Replace(name); len(at)+1+len(name) > maxPointerBytes {
			break
		}
		at += "/" + name
	}
	return at
}

func shorten(at jsontext.Pointer) string {
	for len(at) > maxPointerBytes || strings.Contains(string(at), "\x00") {
		at = at.Parent()
	}
	return string(at)
}
