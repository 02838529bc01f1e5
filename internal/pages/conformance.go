package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

var (
	commentedTest = regexp.MustCompile(`(?m)((?:^//.*\n)+)func (Test\w+)\(`)
	promise       = regexp.MustCompile(`(?m)^// Promise: (.+)$`)
)

// promises reads the lines "Promise: ID" in the comments of tests. The result maps an ID to the names of its tests.
func promises() (tests map[string][]string, err error) {
	tests = map[string][]string{}
	tree := os.DirFS(root)
	err = fs.WalkDir(tree, ".", func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && (entry.Name() == "node_modules" || entry.Name() == ".git") {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(tree, file)
		lines := len(promise.FindAll(source, -1))
		for _, test := range commentedTest.FindAllSubmatch(source, -1) {
			for _, id := range promise.FindAllSubmatch(test[1], -1) {
				tests[string(id[1])] = append(tests[string(id[1])], string(test[2]))
				lines--
			}
		}
		if lines != 0 {
			return fmt.Errorf("%s: a Promise line outside the comment of a test", file)
		}
		return err
	})
	return tests, err
}

var row = regexp.MustCompile(`^- ([^:()]+): (.*\S) \((?:not tested|Test\w+(?:, Test\w+)*)\)$`)

// nameTests replaces the test names at the end of each list item of the page. The item "- 9b: ..." under the heading "## The contract" has
// the ID "contract 9b".
func nameTests(page string, tests map[string][]string) (string, error) {
	unknown := maps.Clone(tests)
	seen := map[string]bool{}
	var heading string
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "## ") {
			heading = strings.ToLower(line[strings.LastIndex(line, " ")+1:])
		}
		if !strings.HasPrefix(line, "- ") {
			continue
		}
		parts := row.FindStringSubmatch(line)
		if parts == nil {
			return "", fmt.Errorf("the row %q must be like %q", line, "- 9b: Decision (not tested)")
		}
		id := heading + " " + parts[1]
		if seen[id] {
			return "", fmt.Errorf("the row %q must have an unused id", line)
		}
		seen[id] = true
		named := "not tested"
		if len(tests[id]) > 0 {
			named = strings.Join(slices.Compact(slices.Sorted(slices.Values(tests[id]))), ", ")
		}
		lines[i] = fmt.Sprintf("- %s: %s (%s)", parts[1], parts[2], named)
		delete(unknown, id)
	}
	for id, names := range unknown {
		return "", fmt.Errorf("%v: no row is %q", names, id)
	}
	return strings.Join(lines, "\n"), nil
}
