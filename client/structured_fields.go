package client

import (
	"cmp"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
)

// maxFields bounds structured fields that come from outside.
const maxFields = 16 << 10

var errField = errors.New("it is not a structured field of the expected form")

// member is one of a dictionary, structured fields' (RFC 8941) kind of map.
type member struct {
	key    string
	value  any    // []byte, string, int64, bool, token, or items for an inner list
	params params // of the value
	// raw is the value with its parameters as it came. The grammar accepts only
	// how a serializer writes them, so that raw is what was signed.
	raw string
}

type (
	token string
	item  struct {
		value  any
		params params
	}
	items  []item
	params map[string]any
)

// Characters of RFC 8941.
const (
	digits     = "0123456789"
	lowers     = "abcdefghijklmnopqrstuvwxyz"
	letters    = lowers + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	keyChars   = lowers + digits + "_-.*"
	tokenChars = letters + digits + "!#$%&'*+-.^_`|~:/"
	textChars  = letters + digits + " !#$%&'()*+,-./:;<=>?@[]^_`{|}~" // but for quotes and backslashes
)

// joined gives all lines of a field as one (RFC 9110, section 5.3).
func joined(h http.Header, name string) string {
	var trimmed []string
	for _, value := range h.Values(name) {
		trimmed = append(trimmed, strings.Trim(value, " \t"))
	}
	return strings.Join(trimmed, ", ")
}

// parseDictionary reads a dictionary. It is stricter than RFC 8941: no key may
// come twice, spaces stand only where a serializer puts them, and there are no
// decimals.
func parseDictionary(text string) ([]member, error) {
	if len(text) > maxFields {
		return nil, errors.New("it is too long")
	}
	p := &fieldParser{rest: text}
	var all []member
	seen := map[string]bool{}
	for p.rest != "" {
		if len(all) > 0 && !p.take(",") {
			p.fail(errField)
		}
		if len(all) > 0 {
			p.span(" \t")
		}
		m := member{key: p.key()}
		if seen[m.key] {
			p.fail(errors.New("a key comes twice"))
		}
		seen[m.key] = true
		before := strings.TrimPrefix(p.rest, "=")
		if p.take("=(") {
			m.value = p.items()
		} else {
			m.value = p.assigned()
		}
		m.params = p.params()
		m.raw = before[:len(before)-len(p.rest)]
		p.span(" \t")
		all = append(all, m)
	}
	return all, p.err
}

// fieldParser takes what it has read off the beginning of rest, which is empty after a mistake.
type fieldParser struct {
	rest string
	err  error // the first mistake
}

func (p *fieldParser) fail(err error) { p.rest, p.err = "", cmp.Or(p.err, err) }

func (p *fieldParser) take(prefix string) (ok bool) {
	p.rest, ok = strings.CutPrefix(p.rest, prefix)
	return ok
}

// span takes as many of the characters as follow.
func (p *fieldParser) span(chars string) string {
	all := p.rest
	p.rest = strings.TrimLeft(all, chars)
	return all[:len(all)-len(p.rest)]
}

func (p *fieldParser) begins(chars string) bool {
	return p.rest != "" && strings.IndexByte(chars, p.rest[0]) >= 0
}

func (p *fieldParser) key() string {
	if !p.begins(lowers + "*") {
		p.fail(errField)
	}
	return p.span(keyChars)
}

// items reads an inner list after its parenthesis.
func (p *fieldParser) items() items {
	list := items{}
	for p.err == nil && !p.take(")") {
		if len(list) > 0 && !p.take(" ") {
			p.fail(errField)
		}
		list = append(list, item{p.value(), p.params()})
	}
	return list
}

func (p *fieldParser) params() params {
	var all params
	for p.take(";") {
		key := p.key()
		if _, twice := all[key]; twice {
			p.fail(errors.New("a parameter comes twice"))
		}
		if all == nil {
			all = params{}
		}
		all[key] = p.assigned()
	}
	return all
}

// assigned reads = and a value; without them the value is true.
func (p *fieldParser) assigned() any {
	if p.take("=") {
		return p.value()
	}
	return true
}

func (p *fieldParser) value() any {
	switch {
	case p.take(`"`):
		return p.text()
	case p.take(":"):
		return p.bytes()
	case p.take("?1"):
		return true
	case p.take("?0"):
		return false
	case p.begins("-" + digits):
		return p.integer()
	case p.begins(letters + "*"):
		return token(p.span(tokenChars))
	}
	p.fail(errField)
	return nil
}

func (p *fieldParser) integer() int64 {
	negative := p.take("-")
	number := p.span(digits)
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || len(number) > 15 || p.begins(".") {
		p.fail(errField)
	}
	if negative {
		n = -n
	}
	return n
}

func (p *fieldParser) text() string {
	var text strings.Builder
	for {
		text.WriteString(p.span(textChars))
		switch {
		case p.take(`"`):
			return text.String()
		case p.take(`\"`):
			text.WriteByte('"')
		case p.take(`\\`):
			text.WriteByte('\\')
		default:
			p.fail(errField)
			return ""
		}
	}
}

func (p *fieldParser) bytes() []byte {
	encoded, rest, closed := strings.Cut(p.rest, ":")
	value, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if p.rest = rest; !closed || err != nil || strings.ContainsAny(encoded, "\r\n") { // the decoder would ignore line ends
		p.fail(errField)
	}
	return value
}
