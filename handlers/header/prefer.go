package header

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Preferences are those of a Prefer header (RFC 7240), and which of them were honored.
type Preferences struct {
	given   map[string]string // by name in lower case
	applied []string
}

// The grammar of a Prefer header (RFC 9110, section 5.6).
const (
	wordForm   = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	quotedForm = `"(?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])*"`
	pairForm   = `(` + wordForm + `)[ \t]*(?:=[ \t]*(` + wordForm + `|` + quotedForm + `)?[ \t]*)?`
)

var (
	// element is a part of a list between commas that are not within quotes; an
	// unterminated quoted string takes all that follows.
	element    = regexp.MustCompile(`(?s)(?:"(?:\\.|[^"\\])*"?|[^",])+`)
	preference = regexp.MustCompile(`^[ \t]*` + pairForm + `(?:;[ \t]*(?:` + pairForm + `)?)*$`)
	escaped    = regexp.MustCompile(`\\(.)`)
)

// ParsePrefer reads a Prefer header. The first of several equal preferences
// counts; what is malformed is ignored, as are parameters.
func ParsePrefer(header string) *Preferences {
	if header == "" {
		return &Preferences{}
	}
	found := map[string]string{}
	for _, item := range element.FindAllString(header, -1) {
		match := preference.FindStringSubmatch(item)
		if match == nil {
			continue
		}
		name, value := strings.ToLower(match[1]), match[2]
		if strings.HasPrefix(value, `"`) {
			value = escaped.ReplaceAllString(value[1:len(value)-1], "$1")
		}
		if _, twice := found[name]; !twice {
			found[name] = value
		}
	}
	return &Preferences{given: found}
}

// Has reports whether the preference was given without a value.
func (p *Preferences) Has(name string) bool {
	value, ok := p.given[name]
	return ok && value == ""
}

// MaxWait is the longest time that a request may wait for its job.
const MaxWait = 30 * time.Second

// Wait gives the time that the client is willing to wait, at most MaxWait;
// false if it gave none in whole seconds.
func (p *Preferences) Wait() (time.Duration, bool) {
	value := p.given["wait"]
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(value)
	if err != nil || n > int(MaxWait/time.Second) { // more digits than an int holds
		return MaxWait, true
	}
	return time.Duration(n) * time.Second, true
}

// ApplyWait records that a wait was honored, if the client asked for one. An answer that needs no wait honors it too.
func (p *Preferences) ApplyWait() {
	if limit, ok := p.Wait(); ok {
		p.applied = append(p.applied, "wait="+strconv.Itoa(int(limit/time.Second)))
	}
}

// ApplyAsync records that an answer did not wait for the end of the work, if that is what the client asked for.
func (p *Preferences) ApplyAsync() {
	if p.Has("respond-async") {
		p.applied = slices.Insert(p.applied, 0, "respond-async")
	}
}

// Applied is the value of Preference-Applied, "" for none.
func (p *Preferences) Applied() string { return strings.Join(p.applied, ", ") }

// Forget withdraws what was recorded.
func (p *Preferences) Forget() { p.applied = nil }
