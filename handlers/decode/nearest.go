package decode

import (
	"strings"
)

// maxGuessBytes bounds what a suggestion is looked for: no name of the API is
// longer, and what a client sends must not cost more because it is long.
const maxGuessBytes = 40

// Nearest gives that of the known names which was probably meant, "" if none is
// near. Case does not count, and neither does - for _.
func Nearest[T ~string](text string, known []T) T {
	var nearest T
	if text == "" || len(text) > maxGuessBytes {
		return nearest
	}
	text = fold(text)
	least := 1 + min(3, (len(text)+1)/3) // edits, one more than may be
	for _, name := range known {
		if n := distance(text, fold(string(name)), least); n < least {
			nearest, least = name, n
		}
	}
	return nearest
}

// DidYouMean is the question for what was probably meant, with a space before it; "" if
// nothing is near.
func DidYouMean[T ~string](text string, known []T) string {
	if name := Nearest(text, known); name != "" {
		return " Did you mean " + string(name) + "?"
	}
	return ""
}

func fold(text string) string { return strings.ReplaceAll(strings.ToLower(text), "-", "_") }

// distance counts the bytes to insert, delete, replace or swap with their neighbour
// that make b of a. It stops at limit, which stands for any larger distance too.
func distance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit || len(b) > maxGuessBytes {
		return limit
	}
	var rows [3][maxGuessBytes + 1]int
	before, last, row := &rows[0], &rows[1], &rows[2]
	for j := range len(b) + 1 {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least >= limit {
			return limit
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], limit)
}
