package scenario

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed files/*.yaml
var files embed.FS

// maxFile limits the size of a scenario.
const maxFile = 64 << 10

// Names lists the ready-made scenarios in alphabetical order.
func Names() []string {
	found, err := fs.Glob(files, "files/*.yaml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	for i, f := range found {
		found[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	return found
}

// Text returns the file of a ready-made scenario. Another name is fs.ErrNotExist.
func Text(name string) ([]byte, error) {
	return files.ReadFile("files/" + name + ".yaml")
}

// Load reads the ready-made scenario of that name, or otherwise the file; ./name is always a file. The error for an invalid file is an
// *InvalidError.
func Load(name string) (*Scenario, error) {
	if text, err := Text(name); err == nil {
		return Parse(name+".yaml", text)
	}
	text, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) && filepath.Base(name) == name {
		return nil, fmt.Errorf("unknown scenario %q: neither a file nor one of %s",
			name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("reading the scenario: %w", err)
	}
	return Parse(name, text)
}

// readFile reads slightly more than the limit, which Parse then refuses.
func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// nameOf returns a scenario's name from its file's.
func nameOf(file string) string {
	base := filepath.Base(file)
	name := strings.Trim(notInNames.ReplaceAllString(strings.TrimSuffix(base, filepath.Ext(base)), "-"), "-_")
	if name == "" {
		return "scenario"
	}
	return name[:min(len(name), 64)]
}
