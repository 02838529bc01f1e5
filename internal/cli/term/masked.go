package term

import (
	"regexp"
	"strings"
	"unicode"
)

var secrets = regexp.MustCompile(`\b(frk_|whsec_)[A-Za-z0-9_+/=-]+|\b(Bearer )\S+`)

// prose matches text that looks like a secret but is not, as in "Bearer tokens SHOULD NOT be passed".
var prose = regexp.MustCompile(`^Bearer (tokens?|authentication|credentials|scheme)\b`)

// MaskedLines applies Masked to each line of a text.
func MaskedLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, Masked(strings.TrimRight(line, "\r\n"))+"\n")
	}
	return strings.Join(lines, "")
}

// Masked replaces secrets with *** and control characters with ?.
func Masked(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, secrets.ReplaceAllStringFunc(text, func(found string) string {
		if prose.MatchString(found) {
			return found
		}
		return secrets.ReplaceAllString(found, "$1$2***")
	}))
}
