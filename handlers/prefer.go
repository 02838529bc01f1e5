package handlers

import (
	"strconv"
	"strings"
	"time"
)

// preferences are those of a Prefer header (RFC 7240), by name in lower case.
type preferences map[string]string

// parsePrefer reads a Prefer header. The first of several equal preferences
// counts; what is malformed is ignored, as are parameters.
func parsePrefer(header string) preferences {
	if header == "" {
		return nil
	}
	found := preferences{}
	for item := range splitQuoted(header, ',') {
		name, value, ok := parsePreference(item)
		if _, twice := found[name]; ok && !twice {
			found[name] = value
		}
	}
	return found
}

// splitQuoted gives the parts of s between separators that are not within
// quoted strings. A quoted string that does not end takes all that follows.
func splitQuoted(s string, separator byte) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		start, quoted := 0, false
		for i := 0; i < len(s); i++ {
			switch c := s[i]; {
			case quoted && c == '\\':
				i++
			case c == '"':
				quoted = !quoted
			case c == separator && !quoted:
				if !yield(s[start:i]) {
					return
				}
				start = i + 1
			}
		}
		yield(s[start:])
	}
}

// parsePreference reads a preference with an optional value, a token or a
// quoted string, and gives the name in lower case.
func parsePreference(item string) (name, value string, ok bool) {
	first := true
	for part := range splitQuoted(item, ';') {
		key, text, valued := strings.Cut(part, "=")
		key, text = trimSpace(key), trimSpace(text)
		switch {
		case !first && key == "" && !valued: // an empty parameter
			continue
		case !isToken(key):
			return "", "", false
		}
		if text != "" && !isToken(text) {
			if text, ok = unquoteHeader(text); !ok {
				return "", "", false
			}
		}
		if first {
			name, value, first = strings.ToLower(key), text, false
		}
	}
	return name, value, true
}

// trimSpace takes optional white space away (RFC 9110, section 5.6.3).
func trimSpace(s string) string { return strings.Trim(s, " \t") }

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(others, c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// unquoteHeader reads a quoted string (RFC 9110, section 5.6.4).
func unquoteHeader(s string) (string, bool) {
	if len(s) < 2 || s[0] != '"' {
		return "", false
	}
	var text strings.Builder
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			return text.String(), i == len(s)-1
		case c == '\\':
			i++
			if i == len(s) {
				return "", false
			}
			c = s[i]
		}
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
		text.WriteByte(c)
	}
	return "", false
}

// has reports whether the preference was given without a value.
func (p preferences) has(name string) bool {
	value, ok := p[name]
	return ok && value == ""
}

// maxWait is the longest time that a request may wait for its job.
const maxWait = 30 * time.Second

// wait gives the time that the client is willing to wait, at most maxWait;
// false if it gave none in whole seconds.
func (p preferences) wait() (time.Duration, bool) {
	value := p["wait"]
	if value == "" || strings.Trim(value, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(value)
	if err != nil || n > int(maxWait/time.Second) { // more digits than an int holds
		return maxWait, true
	}
	return time.Duration(n) * time.Second, true
}
