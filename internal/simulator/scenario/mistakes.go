package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxMistakes is how many mistakes of a file are reported.
const maxMistakes = 20

// Mistake is one thing that is wrong in a scenario, and where. Lines and columns count from 1.
type Mistake struct {
	File         string
	Line, Column int
	What         string // what is wrong, and what is allowed
}

func (m Mistake) String() string {
	return fmt.Sprintf("%s:%d:%d: %s", m.File, m.Line, m.Column, m.What)
}

// InvalidError says what is wrong in a scenario, in the file's order.
type InvalidError struct {
	Mistakes []Mistake // at least one, at most 20
	More     int       // how many there are besides
}

// Error has a line for each mistake.
func (e *InvalidError) Error() string {
	var lines []string
	for _, m := range e.Mistakes {
		lines = append(lines, m.String())
	}
	if e.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d mistakes more", e.More))
	}
	return strings.Join(lines, "\n")
}

func invalid(found []Mistake) error {
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b Mistake) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	found = slices.Compact(found)
	reported := min(len(found), maxMistakes)
	return &InvalidError{Mistakes: found[:reported], More: len(found) - reported}
}

// nearest is the name that takes the fewest edits to get from what was written.
func nearest(written string, names []string) (name string, edits int) {
	for _, n := range names {
		d := distance(strings.ToLower(written), strings.ToLower(n))
		if name == "" || d < edits {
			name, edits = n, d
		}
	}
	return name, edits
}

// suggest is a question to ask about an unknown name, "" if none is near.
func suggest(written string, names []string) string {
	name, edits := nearest(written, names)
	if name == "" || edits > max(2, len(name)/3) {
		return ""
	}
	return `, did you mean "` + name + `"?`
}

const longestName = 64

// distance is Levenshtein's. Long strings are cut: no name is long.
func distance(a, b string) int {
	a, b = a[:min(len(a), longestName)], b[:min(len(b), longestName)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
