// Package report writes what a test bed's session has shown of a client, for CI servers and as a page.
package report

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("verdict").Funcs(template.FuncMap{
	"plain":  printable,
	"count":  func(v *verdict.Verdict, s string) int { return v.Counts[verdict.Status(s)] },
	"broken": broken,
	"having": having,
	"at":     at,
	"times":  times,
}).Parse(page))

// HTML writes the verdict as a page of one file, without a script.
func HTML(w io.Writer, v *verdict.Verdict) error { return pageTemplate.Execute(w, v) }

// having gives the results with a status.
func having(v *verdict.Verdict, s string) (found []verdict.Result) {
	for _, r := range v.Results {
		if string(r.Status) == s {
			found = append(found, r)
		}
	}
	return found
}

// broken gives the rules that were broken, those first that say must.
func broken(v *verdict.Verdict) []verdict.Result {
	found := having(v, string(verdict.Broken))
	slices.SortStableFunc(found, func(a, b verdict.Result) int { return cmp.Compare(a.Level, b.Level) })
	return found
}

// at writes a time of a verdict, or a pointer to one.
func at(t any, layout string) string {
	if p, ok := t.(*fault.Time); ok {
		t = *p
	}
	moment, _ := t.(fault.Time)
	return time.Time(moment).UTC().Format(layout)
}

// printable replaces what would not be seen, or would change how the rest is shown.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
