package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

// encoded encodes v with the member order of the original document. New members come last.
func encoded(v any, original []byte) ([]byte, error) {
	var out bytes.Buffer
	as := []jsontext.Options{ // like encoding/json
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true), jsontext.EscapeForJS(true),
	}
	o := ordered{jsontext.NewDecoder(bytes.NewReader(original), as...), jsontext.NewEncoder(&out, as...)}
	err := o.value(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

type ordered struct {
	from *jsontext.Decoder
	to   *jsontext.Encoder
}

// value encodes v with the member order of the next value in the original.
func (o *ordered) value(v any) error {
	kind := o.from.PeekKind()
	if object, ok := v.(map[string]any); ok && kind == '{' {
		return o.object(object)
	}
	if list, ok := v.([]any); ok && kind == '[' {
		return o.list(list)
	}
	return cmp.Or(o.from.SkipValue(), o.plain(v))
}

func (o *ordered) object(v map[string]any) error {
	rest := maps.Clone(v)
	err := o.delimiter()
	for err == nil && o.from.PeekKind() != '}' {
		var token jsontext.Token
		if token, err = o.from.ReadToken(); err != nil {
			return err
		}
		name := token.String()
		value, kept := rest[name]
		if !kept {
			err = o.from.SkipValue()
			continue
		}
		delete(rest, name) // keep only the first of members with equal names
		if err = o.to.WriteToken(jsontext.String(name)); err == nil {
			err = o.value(value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		err = cmp.Or(err, o.plain(name), o.plain(rest[name]))
	}
	return cmp.Or(err, o.delimiter())
}

// list encodes a list that has the same length as the original.
func (o *ordered) list(v []any) error {
	err := o.delimiter()
	for _, item := range v {
		err = cmp.Or(err, o.value(item))
	}
	return cmp.Or(err, o.delimiter())
}

func (o *ordered) delimiter() error {
	token, err := o.from.ReadToken()
	if err != nil {
		return err
	}
	return o.to.WriteToken(token)
}

func (o *ordered) plain(v any) error {
	text, err := json.Marshal(v)
	return cmp.Or(err, o.to.WriteValue(text))
}
