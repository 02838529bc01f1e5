package client

import (
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
	// raw is the value with its parameters as it came. The parser accepts only
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

// joined gives all lines of a field as one (RFC 9110, section 5.3).
func joined(h http.Header, name string) string {
	values := h.Values(name)
	if len(values) == 1 {
		return strings.Trim(values[0], " \t")
	}
	trimmed := make([]string, len(values))
	for i, value := range values {
		trimmed[i] = strings.Trim(value, " \t")
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
		m, err := p.member()
		if err != nil {
			return nil, err
		}
		if seen[m.key] {
			return nil, errors.New("a key comes twice")
		}
		seen[m.key] = true
		all = append(all, m)
		p.rest = strings.TrimLeft(p.rest, " \t")
		if p.rest == "" {
			break
		}
		if !p.take(',') {
			return nil, errField
		}
		if p.rest = strings.TrimLeft(p.rest, " \t"); p.rest == "" {
			return nil, errField // a comma at the end
		}
	}
	return all, nil
}

// fieldParser takes what it has read off the beginning of rest.
type fieldParser struct{ rest string }

func (p *fieldParser) take(b byte) bool {
	if p.rest == "" || p.rest[0] != b {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// span takes the characters that are allowed.
func (p *fieldParser) span(allowed func(b byte) bool) string {
	n := 0
	for n < len(p.rest) && allowed(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *fieldParser) member() (m member, err error) {
	if m.key, err = p.key(); err != nil {
		return m, err
	}
	m.value = true
	before := p.rest
	if p.take('=') {
		before = p.rest
		if p.take('(') {
			m.value, err = p.innerList()
		} else {
			m.value, err = p.bare()
		}
		if err != nil {
			return m, err
		}
	}
	m.params, err = p.params()
	m.raw = before[:len(before)-len(p.rest)]
	return m, err
}

func (p *fieldParser) key() (string, error) {
	key := p.span(func(b byte) bool { return lower(b) || digit(b) || strings.IndexByte("_-.*", b) >= 0 })
	if key == "" || (!lower(key[0]) && key[0] != '*') {
		return "", errField
	}
	return key, nil
}

func (p *fieldParser) innerList() (items, error) {
	list := items{}
	for !p.take(')') {
		if len(list) > 0 && !p.take(' ') {
			return nil, errField
		}
		value, err := p.bare()
		if err != nil {
			return nil, err
		}
		params, err := p.params()
		if err != nil {
			return nil, err
		}
		list = append(list, item{value, params})
	}
	return list, nil
}

func (p *fieldParser) params() (params, error) {
	var all params
	for p.take(';') {
		key, err := p.key()
		if err != nil {
			return nil, err
		}
		var value any = true
		if p.take('=') {
			if value, err = p.bare(); err != nil {
				return nil, err
			}
		}
		if all == nil {
			all = params{}
		}
		if _, twice := all[key]; twice {
			return nil, errors.New("a parameter comes twice")
		}
		all[key] = value
	}
	return all, nil
}

func (p *fieldParser) bare() (any, error) {
	if p.rest == "" {
		return nil, errField
	}
	switch b := p.rest[0]; {
	case p.take('"'):
		return p.text()
	case p.take(':'):
		return p.bytes()
	case p.take('?'):
		if p.take('1') {
			return true, nil
		}
		if p.take('0') {
			return false, nil
		}
		return nil, errField
	case digit(b) || b == '-':
		return p.integer()
	case lower(b|0x20) || b == '*':
		return token(p.span(func(b byte) bool {
			return lower(b|0x20) || digit(b) || strings.IndexByte("!#$%&'*+-.^_`|~:/", b) >= 0
		})), nil
	}
	return nil, errField
}

func (p *fieldParser) text() (string, error) {
	var text strings.Builder
	for p.rest != "" {
		b := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case b == '"':
			return text.String(), nil
		case b == '\\':
			if p.rest == "" || (p.rest[0] != '"' && p.rest[0] != '\\') {
				return "", errField
			}
			text.WriteByte(p.rest[0])
			p.rest = p.rest[1:]
		case b < ' ' || b > '~':
			return "", errField
		default:
			text.WriteByte(b)
		}
	}
	return "", errField
}

func (p *fieldParser) bytes() ([]byte, error) {
	encoded, rest, closed := strings.Cut(p.rest, ":")
	p.rest = rest
	if !closed || strings.ContainsAny(encoded, "\r\n") {
		return nil, errField // the decoder would pass over line ends
	}
	value, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, errField
	}
	return value, nil
}

func (p *fieldParser) integer() (int64, error) {
	sign := ""
	if p.take('-') {
		sign = "-"
	}
	digits := p.span(digit)
	if digits == "" || len(digits) > 15 || strings.HasPrefix(p.rest, ".") {
		return 0, errField
	}
	return strconv.ParseInt(sign+digits, 10, 64)
}

func lower(b byte) bool { return b >= 'a' && b <= 'z' }
func digit(b byte) bool { return b >= '0' && b <= '9' }
