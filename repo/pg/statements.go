package pg

import (
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Each statement is in the folder that sends it, in a .sql file named like the Go file. It begins with a comment: its name, its contract
// (locks and their order, indexes, the meaning of no row, triggers) and its parameters in order. {{x}} is replaced by the fragment or the
// constant x of any folder.

// section is a statement or a fragment, without comments.
type section struct {
	text   string
	params []string
}

// All folders register their statements here when the program starts.
var (
	sections  = map[string]section{}
	constants = map[string]string{"maxLooked": strconv.Itoa(maxLooked)} // shared with Go code
	variants  = map[string]string{}
)

// Statements registers the statements of a folder, and the constants that they share with its Go code.
//
// statement returns the text that is sent: with numbered parameters and without comments. variant derives a statement from another one;
// with holds pairs of a reference, such as {{owner}}, and its replacement. A variant has its own name. It is made once, when the program
// starts, because regular expressions are slow.
func Statements(files fs.FS, shared map[string]string) (
	statement func(name string) string, variant func(name, of string, with ...string) string,
) {
	for name, s := range readSections(files) {
		if _, known := sections[name]; known {
			panic("pg: two statements are called " + name)
		}
		sections[name] = s
	}
	maps.Copy(constants, shared)
	return statementOf, variantOf
}

// parameter matches a statement's parameter.
var parameter = regexp.MustCompile(`@(\w+)`)

// made caches the texts of statements that are not variants.
var made sync.Map

func statementOf(name string) string {
	text, ok := made.Load(name)
	if !ok {
		text, _ = made.LoadOrStore(name, compose(name, nil))
	}
	return text.(string)
}

func variantOf(name, of string, with ...string) string {
	variants[name] = compose(of, with)
	return variants[name]
}

// Catalog returns, for tests, the names of statements, fragments and constants, and the variants by name.
func Catalog() (names []string, texts map[string]string) {
	return slices.Concat(slices.Collect(maps.Keys(sections)), slices.Collect(maps.Keys(constants))), maps.Clone(variants)
}

func compose(name string, with []string) string {
	text := numbers(sections[name].params).Replace(expand("{{"+name+"}}", with))
	if strings.Contains(text, "@") {
		panic("pg: statement " + name + " uses parameters that it does not list")
	}
	return text
}

// numbers returns a replacer of parameters by numbers. Longer names come first, because one name may be the prefix of another.
func numbers(params []string) *strings.Replacer {
	pairs := make([][]string, len(params))
	for i, p := range params {
		pairs[i] = []string{"@" + p, "$" + strconv.Itoa(i+1)}
	}
	slices.SortFunc(pairs, func(a, b []string) int { return len(b[0]) - len(a[0]) })
	return strings.NewReplacer(slices.Concat(pairs...)...)
}

func expand(text string, with []string) string {
	var out strings.Builder
	text = strings.NewReplacer(with...).Replace(text)
	for {
		before, rest, found := strings.Cut(text, "{{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, _ := strings.Cut(rest, "}}")
		out.WriteString(meaning(name, with))
		text = after
	}
}

// meaning returns the text that replaces a reference to the name.
func meaning(name string, with []string) string {
	if value, ok := constants[name]; ok {
		return value
	}
	s, ok := sections[name]
	if !ok {
		panic("pg: nothing is called " + name)
	}
	return expand(s.text, with)
}

// readSections parses the files. Comments must be on their own lines.
func readSections(files fs.FS) map[string]section {
	paths, err := fs.Glob(files, "*.sql")
	if err != nil {
		panic(err) // cannot happen: the pattern is right
	}
	all := map[string]section{}
	for _, path := range paths {
		content, err := fs.ReadFile(files, path)
		if err != nil {
			panic(err) // cannot happen: the file is embedded
		}
		// Split at the headers of statements and fragments. Fragments are only used within statements.
		for text := range strings.SplitSeq(strings.ReplaceAll("\n"+string(content), "\n-- fragment: ", "\n-- name: "), "\n-- name: ") {
			name, body, _ := strings.Cut(text, "\n")
			all[name] = readSection(body)
		}
	}
	delete(all, "") // text before a file's first header
	return all
}

func readSection(body string) section {
	var s section
	var lines []string
	listed := false // the parameters have begun
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			lines = append(lines, line)
			continue
		}
		if listed = listed || strings.HasPrefix(line, "-- Parameters: "); listed {
			for _, p := range parameter.FindAllStringSubmatch(line, -1) {
				s.params = append(s.params, p[1])
			}
		}
	}
	s.text = strings.TrimSpace(strings.Join(lines, ""))
	return s
}
