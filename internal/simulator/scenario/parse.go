package scenario

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Parse reads a scenario; file is what its mistakes are told about, and what it
// is named after unless it says its name. The error for a bad one is an
// *InvalidError.
func Parse(file string, text []byte) (*Scenario, error) {
	d := &decoder{file: file}
	root := d.document(text)
	s := &Scenario{
		Name: nameOf(file), Seed: defaultSeed, Drain: defaultDrain, Tenants: 1, Pick: Weighted,
		Readers: Readers{Streams: 1, SlowPause: defaultSlowPause},
		Service: Service{Workers: defaultWorkers, Concurrency: defaultConcurrency},
	}
	if root != nil {
		d.scenario(root, s)
	}
	if err := invalid(d.found); err != nil {
		return nil, err
	}
	return s, nil
}

// document is the root of the file's only document, or nil after a mistake.
func (d *decoder) document(text []byte) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(text) > maxFile {
		d.wrong(start, "the file is too large: a scenario has at most %d bytes", maxFile)
		return nil
	}
	reader := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := reader.Decode(&document)
	switch {
	case errors.Is(err, io.EOF) || err == nil && empty(&document):
		d.wrong(start, "the file is empty: a scenario needs at least duration or jobs, arrival and mix")
		return nil
	case err != nil:
		d.notYAML(err)
		return nil
	}
	switch err := reader.Decode(&second); {
	case errors.Is(err, io.EOF):
	case err != nil:
		d.notYAML(err)
		return nil
	default:
		d.wrong(&second, "a second document starts here: a file has one scenario")
		return nil
	}
	return document.Content[0]
}

func empty(document *yaml.Node) bool {
	return len(document.Content) == 0 || document.Content[0].ShortTag() == "!!null"
}

var yamlError = regexp.MustCompile(`^yaml: (?:line ([0-9]+)(?:, column ([0-9]+))?: )?((?s).*)$`)

// notYAML takes the place out of the library's error. It knows the line only.
func (d *decoder) notYAML(err error) {
	at, what := &yaml.Node{Line: 1, Column: 1}, err.Error()
	if parts := yamlError.FindStringSubmatch(what); parts != nil {
		what = parts[3]
		if line, err := strconv.Atoi(parts[1]); err == nil {
			at.Line = line
		}
		if column, err := strconv.Atoi(parts[2]); err == nil {
			at.Column = column
		}
	}
	d.wrong(at, "not YAML: %s", strings.TrimSpace(what))
}
