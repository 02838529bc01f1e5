package header

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Preferences are the values of a Prefer header (RFC 7240), with marks of the preferences that were honored.
type Preferences struct {
	given   map[string]string // values by lower-case name
	applied []string
}

// The grammar of a Prefer header (RFC 9110, section 5.6).
const (
	wordForm   = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
	quotedForm = `"(?:[^\x00-\x08\x0a-\x1f\x7f"\\]|\\[^\x00-\x08\x0a-\x1f\x7f])*"`
	pairForm   = `(` + wordForm + `)[ \t]*(?:=[ \t]*(` + wordForm + `|` + quotedForm + `)?[ \t]*)?`
)

var (
	// element matches a list element. A comma within quotes does not end the element. An unterminated quoted string extends to the end.
	element    = regexp.MustCompile(`(?s)(?:"(?:\\.|[^"\\])*"?|[^",])+`)
	preference = regexp.MustCompile(`^[ \t]*` + pairForm + `(?:;[ \t]*(?:` + pairForm + `)?)*$`)
	escaped    = regexp.MustCompile(`\\(.)`)
)

// ParsePrefer parses a Prefer header. If a preference is repeated, the first one counts. Parameters and malformed parts are ignored.
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

// Has reports whether the preference is present without a value.
func (p *Preferences) Has(name string) bool {
	value, ok := p.given[name]
	return ok && value == ""
}

// MaxWait is the maximum time that a request can wait for a change.
const MaxWait = 30 * time.Second

// Wait returns how long the client wants to wait, at most MaxWait. It returns false if there is no valid number of seconds.
func (p *Preferences) Wait() (time.Duration, bool) {
	value := p.given["wait"]
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(value)
	if err != nil || n > int(MaxWait/time.Second) { // the number may overflow an int
		return MaxWait, true
	}
	return time.Duration(n) * time.Second, true
}

// ApplyWait marks a requested wait as honored, also if no wait was necessary.
func (p *Preferences) ApplyWait() {
	if limit, ok := p.Wait(); ok {
		p.applied = append(p.applied, "wait="+strconv.Itoa(int(limit/time.Second)))
	}
}

// ApplyAsync marks a requested asynchronous response as honored.
func (p *Preferences) ApplyAsync() {
	if p.Has("respond-async") {
		p.applied = slices.Insert(p.applied, 0, "respond-async")
	}
}

// Applied returns the value of Preference-Applied, or "".
func (p *Preferences) Applied() string { return strings.Join(p.applied, ", ") }

// Forget removes all marks of honored preferences.
func (p *Preferences) Forget() { p.applied = nil }
