package decode

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

type findings struct {
	form   []job.Violation // structural mistakes: RFA_REQUEST_MALFORMED
	values []job.Violation // invalid values: RFA_JOB_VALIDATION_FAILED
	limit  int             // maximum length of each list
	more   int             // number of violations beyond the limit
}

func (f *findings) all() []job.Violation { return slices.Concat(f.form, f.values) }

func (f *findings) count() int { return len(f.form) + len(f.values) + f.more }

// request returns values for the fields Violations, Unlisted and Malformed of a job.Request.
func (f *findings) request() (all []job.Violation, unlisted int, malformed bool) {
	return f.all(), f.more, len(f.form) > 0
}

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

func (f *findings) add(other *findings) {
	for _, v := range other.form {
		f.malformedAt(v.Pointer, v.Detail)
	}
	for _, v := range other.values {
		f.invalidAt(v.Pointer, v.Detail)
	}
	f.more += other.more
}

func (r *reader) fine() bool { return r.err == nil && r.count() == 0 }

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointer appends names to a JSON Pointer (RFC 6901). It stops at a name that makes the pointer too long or contains NUL.
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

type finding struct {
	of       *schema
	path     []string
	place    int // index of the outermost member that contains the mistake
	isForm   bool
	sentence func(path []string) string // returns a sentence about the mistake; called only for findings that the response shows
}

// find records a mistake in the value at the current path. If a required member is missing in the value, `missing` is the member's name.
func (r *reader) find(of *schema, isForm bool, sentence func(path []string) string, missing ...string) {
	if len(r.path) > 0 && (len(r.wrong) == 0 || r.wrong[len(r.wrong)-1] != r.path[0].name) {
		r.wrong = append(r.wrong, r.path[0].name)
	}
	if len(r.found) >= maxFound {
		r.more++
		return
	}
	f := finding{of: of, place: r.place, isForm: isForm, sentence: sentence}
	for _, s := range r.path {
		if s.index >= 0 {
			s.name = strconv.Itoa(s.index)
		}
		f.path = append(f.path, s.name)
	}
	f.path = append(f.path, missing...)
	r.found = append(r.found, f)
}

// recordFindings adds the findings to the violations. It sorts the findings by the position of their outermost member in the body, then by
// path.
func (r *reader) recordFindings() {
	slices.SortStableFunc(r.found, func(a, b finding) int {
		if len(a.path) == 0 || len(b.path) == 0 {
			return len(a.path) - len(b.path)
		}
		return cmp.Or(a.place-b.place, slices.CompareFunc(a.path, b.path, natural))
	})
	var seen map[string]bool
	for _, f := range r.found {
		list := &r.values
		if f.isForm {
			list = &r.form
		}
		if len(*list) >= r.limit {
			r.more++
			continue
		}
		if at := pointer(r.base, f.path...); !seen[at] {
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[at] = true
			detail := f.of.Refusal
			if detail == "" {
				detail = f.sentence(f.path)
			}
			r.record(list, at, detail)
		}
	}
}

// natural compares lengths first, which sorts array indexes numerically.
func natural(a, b string) int { return cmp.Or(len(a)-len(b), cmp.Compare(a, b)) }

var absent = &schema{}

func (r *reader) checkMembers(s *schema, seen uint64, count int) {
	for _, name := range s.Required {
		if seen&(1<<s.Properties[name].index) == 0 {
			r.find(absent, true, func([]string) string { return "This member is required." }, name)
		}
	}
	if count < s.MinProperties {
		r.find(s, true, func([]string) string {
			return "The object must have at least one of " + strings.Join(slices.Sorted(maps.Keys(s.Properties)), ", ") + "."
		})
	}
}

// checkName refuses a member that the schema does not allow. The caller has already added `name` to the path.
func (r *reader) checkName(s *schema, name string) {
	switch {
	case !s.Open:
		r.find(s, true, func([]string) string { return r.unknown(s, name) })
	case s.names != nil && !s.names.MatchString(name):
		r.find(s, true, func([]string) string {
			return "The name of an extension member must be a letter and 2 to 63 letters, digits and '_' (RFC 9457, section 3.2)."
		})
	}
}

func (r *reader) checkCount(s *schema, count int) {
	switch {
	case count < s.MinItems:
		r.find(s, s.Malformed == "minItems", s.valueSentence)
	case s.MaxItems > 0 && count > s.MaxItems:
		r.find(s, s.Malformed == "maxItems", s.valueSentence)
	}
}

func (r *reader) checkText(s *schema, raw []byte) {
	text := string(unquoted(raw))
	switch f := &s.form; {
	case s.Enum != nil:
		if !slices.Contains(s.Enum, text) {
			r.find(s, false, func(path []string) string { return r.noSuch(s, path, text) })
		}
	case f.wrong != nil:
		if wrong := f.wrong(text); wrong != "" {
			r.find(s, false, func([]string) string { return wrong })
		}
	case f.fits != nil && !f.fits(text), len(text) < s.MinLength, s.MaxLength > 0 && utf8.RuneCountInString(text) > s.MaxLength:
		r.find(s, false, s.valueSentence)
	}
}

func (r *reader) checkNumber(s *schema, raw []byte) {
	n, _ := strconv.ParseFloat(string(raw), 64)
	if s.Minimum != nil && n < *s.Minimum || s.Maximum != nil && n > *s.Maximum ||
		s.ExclusiveMinimum != nil && n <= *s.ExclusiveMinimum || s.isInteger && n != math.Trunc(n) {
		r.find(s, false, s.valueSentence)
	}
}

func (r *reader) unknown(s *schema, name string) string {
	var known []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if kinds := s.Properties[name].kinds; kinds != "" && kinds != "n" {
			known = append(known, name)
		}
	}
	if len(known) == 0 {
		return "Unknown member; the object must be empty."
	}
	return "Unknown member." + suggest(r, name, known) + " The object may have " + strings.Join(known, ", ") + "."
}

var typeNames = map[string]string{"string": "a string", "object": "an object", "array": "an array", "boolean": "true or false",
	"integer": "a whole number", "number": "a number"}

func (r *reader) wrongType(s *schema, got jsontext.Kind) {
	r.find(s, true, func(path []string) string {
		if len(path) == 0 && r.base == "" {
			return "The body must be a JSON object."
		}
		instead := "."
		if got == 'n' {
			instead = ", not null. Remove the member instead."
		}
		return "This must be " + typeNames[s.Type[0]] + instead
	})
}

func (r *reader) noSuch(s *schema, path []string, got string) string {
	known := s.Enum
	if !r.limits.TestBed {
		known = slices.DeleteFunc(slices.Clone(known), func(v string) bool { return v == string(job.Custom) })
	}
	what, isElement := "value", false
	for _, name := range slices.Backward(path) {
		if _, err := strconv.Atoi(name); err != nil {
			if what = strings.ReplaceAll(name, "_", " "); isElement {
				what = strings.TrimSuffix(what, "s")
			}
			break
		}
		isElement = true
	}
	return "There is no such " + what + "." + suggest(r, got, known) + " It must be " + OneOf(known) + s.Note + "."
}

// suggest calls DidYouMean. After maxGuesses calls for one body, it returns "".
func suggest(r *reader, text string, known []string) string {
	if r.guess == 0 || len(text) > maxGuessBytes {
		return ""
	}
	r.guess--
	return DidYouMean(text, known)
}

func (s *schema) valueSentence([]string) string {
	switch {
	case s.Items != nil || s.MaxItems > 0:
		return fmt.Sprintf("This must have %d to %d elements.", s.MinItems, s.MaxItems)
	case s.allows('0'):
		sentence := "This must be a number"
		if s.isInteger {
			sentence = "This must be a whole number"
		}
		plain := func(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }
		switch {
		case s.ExclusiveMinimum != nil:
			return sentence + " above " + plain(*s.ExclusiveMinimum) + ", up to " + plain(*s.Maximum) + "."
		case s.Minimum == nil:
			return sentence + "."
		case s.Maximum == nil:
			return sentence + " of at least " + plain(*s.Minimum) + "."
		}
		return sentence + " from " + plain(*s.Minimum) + " to " + plain(*s.Maximum) + "."
	case s.MinLength == 0:
		return fmt.Sprintf("This must have at most %d %s.", s.MaxLength, cmp.Or(s.form.characters, "characters"))
	}
	return fmt.Sprintf("This must be %d to %d %s.", s.MinLength, s.MaxLength, cmp.Or(s.form.characters, "characters"))
}
