package client

import (
	"encoding/base64"
	"errors"
	"net/http"
	"regexp"
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

// The grammar of RFC 8941, but without decimals. It is stricter than the RFC:
// spaces stand only where a serializer puts them.
const (
	keyGrammar    = `[a-z*][a-z0-9_.*-]*`
	stringGrammar = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	tokenGrammar  = "[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*"
	valueGrammar  = `(?:` + stringGrammar + `|:[A-Za-z0-9+/=]*:|\?[01]|-?[0-9]{1,15}|` + tokenGrammar + `)`
	paramGrammar  = `(?:;` + keyGrammar + `(?:=` + valueGrammar + `)?)*`
	itemGrammar   = valueGrammar + paramGrammar
	listGrammar   = `\((?:` + itemGrammar + `(?: ` + itemGrammar + `)*)?\)`
)

var (
	memberPattern = regexp.MustCompile(`^(` + keyGrammar + `)(?:=(` + valueGrammar + `|` + listGrammar + `))?(` + paramGrammar + `)`)
	itemPattern   = regexp.MustCompile(`(` + valueGrammar + `)(` + paramGrammar + `)`)
	paramPattern  = regexp.MustCompile(`;(` + keyGrammar + `)(?:=(` + valueGrammar + `))?`)
	commaPattern  = regexp.MustCompile(`^[ \t]*,[ \t]*`)
)

// joined gives all lines of a field as one (RFC 9110, section 5.3).
func joined(h http.Header, name string) string {
	var trimmed []string
	for _, value := range h.Values(name) {
		trimmed = append(trimmed, strings.Trim(value, " \t"))
	}
	return strings.Join(trimmed, ", ")
}

// parseDictionary reads a dictionary. No key may come twice.
func parseDictionary(text string) ([]member, error) {
	if len(text) > maxFields {
		return nil, errors.New("it is too long")
	}
	var all []member
	seen := map[string]bool{}
	for rest := text; rest != ""; {
		if len(all) > 0 {
			comma := commaPattern.FindString(rest)
			if comma == "" {
				return nil, errField
			}
			rest = rest[len(comma):]
		}
		match := memberPattern.FindStringSubmatch(rest)
		if match == nil {
			return nil, errField
		}
		m := member{key: match[1], raw: strings.TrimPrefix(match[0][len(match[1]):], "=")}
		if seen[m.key] {
			return nil, errors.New("a key comes twice")
		}
		seen[m.key] = true
		var err error
		if strings.HasPrefix(match[2], "(") {
			m.value, err = parseItems(match[2])
		} else {
			m.value, err = parseValue(match[2])
		}
		if err != nil {
			return nil, err
		}
		if m.params, err = parseParams(match[3]); err != nil {
			return nil, err
		}
		all = append(all, m)
		rest = strings.TrimRight(rest[len(match[0]):], " \t")
	}
	return all, nil
}

// parseItems reads an inner list that matches listGrammar.
func parseItems(text string) (items, error) {
	list := items{}
	for _, match := range itemPattern.FindAllStringSubmatch(text, -1) {
		value, err := parseValue(match[1])
		if err != nil {
			return nil, err
		}
		params, err := parseParams(match[2])
		if err != nil {
			return nil, err
		}
		list = append(list, item{value, params})
	}
	return list, nil
}

// parseParams reads what matches paramGrammar.
func parseParams(text string) (params, error) {
	var all params
	for _, match := range paramPattern.FindAllStringSubmatch(text, -1) {
		if _, twice := all[match[1]]; twice {
			return nil, errors.New("a parameter comes twice")
		}
		value, err := parseValue(match[2])
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = params{}
		}
		all[match[1]] = value
	}
	return all, nil
}

// parseValue reads what matches valueGrammar; "" is true.
func parseValue(text string) (any, error) {
	if text == "" {
		return true, nil
	}
	inner := text[1:max(1, len(text)-1)] // without its quotes or colons
	switch b := text[0]; {
	case b == '"':
		return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(inner), nil
	case b == ':':
		value, err := base64.StdEncoding.Strict().DecodeString(inner)
		if err != nil {
			return nil, errField
		}
		return value, nil
	case b == '?':
		return text == "?1", nil
	case b == '-' || digit(b):
		return strconv.ParseInt(text, 10, 64)
	}
	return token(text), nil
}
