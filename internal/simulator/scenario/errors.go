package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// maxMistakes is how many mistakes of a file are reported.
const maxMistakes = 20

// Mistake is one thing that is wrong in a scenario, and where. Lines and columns
// count from 1.
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
	slices.SortStableFunc(found, func(a, b Mistake) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	found = slices.Compact(found)
	reported := min(len(found), maxMistakes)
	return &InvalidError{Mistakes: found[:reported], More: len(found) - reported}
}
