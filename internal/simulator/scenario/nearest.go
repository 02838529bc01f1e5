package scenario

import "strings"

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
