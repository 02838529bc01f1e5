package verdict

import (
	_ "embed"
	"html/template"
	"io"
	"strings"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

//go:embed page.html
var page string

var pageTemplate = template.Must(template.New("verdict").Funcs(template.FuncMap{
	"plain": judge.Printable,
	"words": func(s string) string { return strings.ReplaceAll(s, "_", " ") },
}).Parse(page))

// WriteHTML writes the verdict as a page of one file, without a script.
func WriteHTML(w io.Writer, v *client.Verdict) error { return pageTemplate.Execute(w, v) }
