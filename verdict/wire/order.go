package wire

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
)

// encoded encodes a document with its members in the order of the original. New members come last.
func encoded(v any, original []byte) ([]byte, error) {
	o := ordered{from: json.NewDecoder(bytes.NewReader(original))}
	o.from.UseNumber()
	err := o.value(v)
	return o.out.Bytes(), err
}

type ordered struct {
	from *json.Decoder
	out  bytes.Buffer
}

// value encodes a value in place of the next value of the original.
func (o *ordered) value(v any) error {
	token, err := o.from.Token()
	if err != nil {
		return err
	}
	object, isObject := v.(map[string]any)
	list, isList := v.([]any)
	switch delim, _ := token.(json.Delim); {
	case delim == '{' && isObject:
		return o.object(object)
	case delim == '[' && isList:
		return o.list(list)
	case delim != 0:
		err = o.skip(1)
	}
	if err == nil {
		err = o.plain(v)
	}
	return err
}

func (o *ordered) object(v map[string]any) error {
	rest := maps.Clone(v)
	between := byte('{')
	name := func(text string) error {
		o.out.WriteByte(between)
		between = ','
		err := o.plain(text)
		o.out.WriteByte(':')
		return err
	}
	for o.from.More() {
		token, err := o.from.Token()
		if err != nil {
			return err
		}
		text, _ := token.(string)
		value, kept := rest[text]
		if !kept {
			if err = o.skip(0); err != nil {
				return err
			}
			continue
		}
		delete(rest, text) // keep only the first of members with equal names
		if err = name(text); err == nil {
			err = o.value(value)
		}
		if err != nil {
			return err
		}
	}
	for _, text := range slices.Sorted(maps.Keys(rest)) {
		if err := name(text); err != nil {
			return err
		}
		if err := o.plain(rest[text]); err != nil {
			return err
		}
	}
	if between == '{' {
		o.out.WriteByte('{')
	}
	o.out.WriteByte('}')
	_, err := o.from.Token()
	return err
}

// list encodes a list that has the same length as the original.
func (o *ordered) list(v []any) error {
	o.out.WriteByte('[')
	for i, item := range v {
		if i > 0 {
			o.out.WriteByte(',')
		}
		if err := o.value(item); err != nil {
			return err
		}
	}
	o.out.WriteByte(']')
	_, err := o.from.Token()
	return err
}

// skip skips the next value or, if depth is greater than 0, the rest of nested values.
func (o *ordered) skip(depth int) error {
	for {
		token, err := o.from.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

func (o *ordered) plain(v any) error {
	encoder := json.NewEncoder(&o.out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	o.out.Truncate(o.out.Len() - min(1, o.out.Len())) // remove the line feed of the encoder
	return err
}
