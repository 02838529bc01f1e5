package main

import (
	"fmt"
	"html"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"
)

// Sizes, in pixels where the picture is as wide as width.
const (
	columns   = 106 // what jobs watch prints of a change of state just fits in
	character = 8.2
	rowHeight = 18
	width     = 900
	height    = 476
)

// The rows of each pane. Where the picture is narrow its text is larger, and the ends of long lines are cut off.
var (
	wide   = [2]int{19, 3}
	narrow = [2]int{9, 2}
)

// picture moves by CSS alone, since an <img> runs no scripts: every version of a line is there from the start, and is visible for
// its time. Without motion it is the last frame.
var picture = template.Must(template.New("svg").Parse(`<svg xmlns="http://www.w3.org/2000/svg" ` +
	`viewBox="0 0 {{.Width}} {{.Height}}" role="img" aria-label="{{.Label}}">
<title>{{.Label}}</title>
<style>
text { font: 13.6px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #e6edf3; white-space: pre }
.b { font-weight: 700 } .d { fill: #8b949e } .r { fill: #ff7b72 } .g { fill: #3fb950 } .y { fill: #d29922 } .c { fill: #39c5cf }
.l { visibility: hidden } .f { visibility: visible }
.l, .s { animation: {{.Seconds}}s step-end infinite }
{{.Keyframes}}.p0 { transform: translate(15px, 38px) } .p1 { transform: translate(15px, 414px) }
{{.Wide}}@media (max-width: 600px) {
.p0 { transform: translate(15px, 38px) scale(1.75) } .p1 { transform: translate(15px, 399px) scale(1.75) }
{{.Narrow}}.note { display: none }
}
@media (prefers-reduced-motion: reduce) { .l, .s { animation: none !important } }
</style>
<clipPath id="w"><rect width="{{.Width}}" height="{{.Height}}" rx="8"/></clipPath>
<g clip-path="url(#w)"><rect width="{{.Width}}" height="{{.Height}}" fill="#0d1117"/>
<g class="p0"><g class="s s0">
{{index .Lines 0}}</g></g>
<g class="p1"><rect x="-15" y="-26" width="{{.Width}}" height="300" fill="#0d1117"/><g class="s s1">
{{index .Lines 1}}</g>
<path d="M-15 -28 h{{.Width}} v21 h-{{.Width}} z" fill="#161b22"/><text class="d" y="-12">another terminal</text></g>
<rect width="{{.Width}}" height="38" fill="#0d1117"/><rect width="{{.Width}}" height="30" fill="#161b22"/>
<circle cx="19" cy="15" r="5" fill="#ff7b72"/><circle cx="37" cy="15" r="5" fill="#d29922"/><circle cx="55" cy="15" r="5" fill="#3fb950"/>
<text class="d note" x="885" y="20" text-anchor="end">{{.Note}}</text></g>
<rect x="0.5" y="0.5" width="{{.Width}}" height="{{.Height}}" rx="8" fill="none" stroke="#30363d"/>
</svg>
`))

// svg draws a film. The label says what happens in it, the note stands in the title bar.
func svg(f film, label, note string) (string, error) {
	var lines [2]strings.Builder
	k := keyframes{length: f.length, names: map[[2]time.Duration]string{}}
	for _, v := range f.versions {
		class := "l " + k.of(v)
		if v.to == 0 {
			class += " f"
		}
		fmt.Fprintf(&lines[v.pane], `<g class="%s">`, class)
		for _, s := range v.line {
			look := ""
			if name := looks[s.look]; name != "" {
				look = fmt.Sprintf(` class="%s"`, name)
			}
			// With its length the text is aligned in every font.
			fmt.Fprintf(&lines[v.pane], `<text%s x="%.1f" y="%d" textLength="%.1f">%s</text>`, look, float64(s.column)*character,
				v.row*rowHeight+13, float64(utf8.RuneCountInString(s.text))*character, html.EscapeString(s.text))
		}
		lines[v.pane].WriteString("</g>\n")
	}
	inWide, inNarrow := k.scroll(f, wide, "w"), k.scroll(f, narrow, "n") // which add keyframes
	var b strings.Builder
	err := picture.Execute(&b, map[string]any{
		"Width": width, "Height": height, "Label": html.EscapeString(label), "Note": html.EscapeString(note),
		"Seconds": fmt.Sprintf("%.2f", f.length.Seconds()), "Keyframes": k.css.String(), "Wide": inWide, "Narrow": inNarrow,
		"Lines": []string{lines[0].String(), lines[1].String()},
	})
	return b.String(), err
}

// keyframes are the animations. Lines that come and go together share one.
type keyframes struct {
	length time.Duration
	css    strings.Builder
	names  map[[2]time.Duration]string
}

func (k *keyframes) percent(at time.Duration) string {
	return fmt.Sprintf("%.2f%%", 100*at.Seconds()/k.length.Seconds())
}

// of is the class of a version.
func (k *keyframes) of(v version) string {
	times := [2]time.Duration{v.from, v.to}
	if name, known := k.names[times]; known {
		return name
	}
	name := fmt.Sprintf("k%d", len(k.names))
	k.names[times] = name
	fmt.Fprintf(&k.css, ".%s { animation-name: %[1]s } @keyframes %[1]s { 0%% { visibility: hidden } %s { visibility: visible }",
		name, k.percent(v.from))
	if v.to != 0 {
		fmt.Fprintf(&k.css, " %s { visibility: hidden }", k.percent(v.to))
	}
	k.css.WriteString(" }\n")
	return name
}

// scroll gives the rules that move panes up whenever a line comes below their last row.
func (k *keyframes) scroll(f film, rows [2]int, prefix string) string {
	var rules strings.Builder
	for pane := range rows {
		up := 0
		move := func() string { return fmt.Sprintf("transform: translateY(%dpx)", -up*rowHeight) }
		fmt.Fprintf(&k.css, "@keyframes %s%d { 0%% { %s }", prefix, pane, move())
		for _, v := range f.versions {
			if to := v.row - rows[pane] + 1; v.pane == pane && to > up {
				up = to
				fmt.Fprintf(&k.css, " %s { %s }", k.percent(v.from), move())
			}
		}
		k.css.WriteString(" }\n")
		fmt.Fprintf(&rules, ".s%d { animation-name: %s%d; %s }\n", pane, prefix, pane, move())
	}
	return rules.String()
}
