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

// Statements are in .sql files. Each file is next to the Go file of the same name, which sends the statements. The comment above a
// statement has its name, its contract (locks, indexes, what a missing row means) and its parameters in order. {{x}} stands for the
// fragment or constant x, which any file or package may define.
//
// The header "-- name: listByClient of listJobs" makes a variant of listJobs with the same parameters. Lines like "-- old => new" below
// the header replace `old` by `new` in the variant, also in its fragments.

// section is a statement or a fragment, without comments.
type section struct {
	isFragment bool
	text       string
	params     []string
	of         string   // for a variant: name of the original statement or fragment; otherwise ""
	with       []string // pairs of an old and a new text
}

var (
	sections  = map[string]*section{}
	constants = map[string]string{"maxLooked": strconv.Itoa(maxLooked)} // shared with Go code
)

// Statements registers the .sql files of a folder. `shared` has constants that the files use as {{name}}. The returned function `statement`
// returns the text of a statement as it is sent: with numbered parameters and without comments.
func Statements(files fs.FS, shared map[string]string) (statement func(name string) string) {
	paths, err := fs.Glob(files, "*.sql")
	for _, path := range paths {
		var content []byte
		if content, err = fs.ReadFile(files, path); err == nil {
			register(string(content))
		}
	}
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	maps.Copy(constants, shared)
	return statementOf
}

var parameter = regexp.MustCompile(`@\w+`)

func register(content string) {
	var latest []*section
	listed := false
	for line := range strings.Lines(content) {
		comment, isComment := strings.CutPrefix(strings.TrimSpace(line), "--")
		comment = strings.TrimSpace(comment)
		kind, names, _ := strings.Cut(comment, ": ")
		if isComment && (kind == "name" || kind == "fragment") {
			latest, listed = nil, false
			for each := range strings.SplitSeq(names, ", ") {
				name, of, _ := strings.Cut(each, " of ")
				if sections[name] != nil {
					panic("pg: two statements are called " + name)
				}
				sections[name] = &section{isFragment: kind == "fragment", of: of}
				latest = append(latest, sections[name])
			}
			continue
		}
		listed = listed || kind == "Parameters"
		before, after, replaces := strings.Cut(comment, " =>")
		for _, s := range latest {
			switch {
			case !isComment:
				s.text += line
			case listed:
				s.params = append(s.params, parameter.FindAllString(comment, -1)...)
			case replaces:
				s.with = append(s.with, before, strings.TrimSpace(after))
			}
		}
	}
}

var made sync.Map

func statementOf(name string) string {
	text, ok := made.Load(name)
	if !ok {
		text, _ = made.LoadOrStore(name, compose(name))
	}
	return text.(string)
}

// Catalog is for tests. It returns all names, and the texts of all statements.
func Catalog() (names []string, statements map[string]string) {
	statements = map[string]string{}
	for name, s := range sections {
		if !s.isFragment {
			statements[name] = statementOf(name)
		}
	}
	return slices.Concat(slices.Collect(maps.Keys(sections)), slices.Collect(maps.Keys(constants))), statements
}

func compose(name string) string {
	text := meaning(name, nil)
	base := sections[name]
	for base.of != "" {
		base = sections[base.of]
	}
	if text = numbers(base.params).Replace(text); strings.Contains(text, "@") {
		panic("pg: statement " + name + " uses parameters that it does not list")
	}
	return text
}

// numbers returns a Replacer that replaces parameter names with $1, $2 and so on. Longer names come first, because one name may be the
// prefix of another.
func numbers(params []string) *strings.Replacer {
	pairs := make([][]string, len(params))
	for i, p := range params {
		pairs[i] = []string{p, "$" + strconv.Itoa(i+1)}
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

func meaning(name string, with []string) string {
	if value, ok := constants[name]; ok {
		return value
	}
	s := sections[name]
	switch {
	case s == nil:
		panic("pg: nothing is called " + name)
	case s.of != "":
		return meaning(s.of, slices.Concat(with, s.with))
	}
	return expand(strings.TrimSpace(s.text), with)
}
