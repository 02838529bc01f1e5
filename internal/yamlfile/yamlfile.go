// Package yamlfile reads YAML that a user wrote.
package yamlfile

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

var (
	unknownField = regexp.MustCompile(`(?s)field (\S+) not found in type .*`)
	wrongType    = regexp.MustCompile("(?s)cannot unmarshal !!(\\w+)( `.*?`)? into .*")
	kinds        = strings.NewReplacer("unexpected map", "unexpected mapping", "unexpected seq", "unexpected list",
		"unexpected str", "unexpected text", "unexpected int", "unexpected number", "unexpected float", "unexpected number")
)

// Decode reads YAML text into the value that `to` points to. It refuses unknown members. Its errors contain the line, but no Go types.
func Decode(text []byte, to any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	err := d.Decode(to)
	var found []string
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		for _, line := range wrong.Errors {
			line = unknownField.ReplaceAllString(line, `unknown member "$1"`)
			found = append(found, kinds.Replace(wrongType.ReplaceAllString(line, "unexpected $1$2")))
		}
		return errors.New(strings.Join(found, "; "))
	}
	if errors.Is(err, io.EOF) { // an empty file
		return nil
	}
	return err
}
