package figures

import (
	"fmt"
	"html"
	"strings"
)

// Bars is one part of a picture: the same measure of several systems.
type Bars struct {
	Title  string
	Format string // of a value
	Values []Bar
}

// Bar is the value of one system; one of 0 has none.
type Bar struct {
	System string
	Value  float64
}

// Sizes of a picture, in pixels.
const (
	barHeight  = 18
	barStep    = 24
	titleSpace = 34
	labelWidth = 90
	barWidth   = 420
	imageWidth = labelWidth + barWidth + 120
)

// Picture draws the parts below each other, as an SVG for light and dark pages. The first system is highlighted.
func Picture(parts []Bars) string {
	var b strings.Builder
	y := 0
	for _, p := range parts {
		y += titleSpace
		fmt.Fprintf(&b, `<text class="t" x="0" y="%d">%s</text>`+"\n", y-10, html.EscapeString(p.Title))
		most := 0.0
		for _, v := range p.Values {
			most = max(most, v.Value)
		}
		for i, v := range p.Values {
			if v.Value == 0 {
				continue
			}
			class := "o"
			if i == 0 {
				class = "f"
			}
			width := max(1, v.Value/most*barWidth)
			fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><rect class="%s" x="%d" y="%d" width="%.0f" height="%d" rx="2"/>`+
				`<text x="%.0f" y="%d">%s</text>`+"\n", y+13, html.EscapeString(v.System), class, labelWidth, y, width, barHeight,
				labelWidth+width+8, y+13, html.EscapeString(fmt.Sprintf(p.Format, v.Value)))
			y += barStep
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<style>
text { font: 13px system-ui, sans-serif; fill: #24292f; } .t { font-weight: 600; }
.f { fill: #0b6bcb; } .o { fill: #a9b4c0; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .f { fill: #58a6ff; } .o { fill: #57606a; } }
</style>
%s</svg>
`, imageWidth, y+8, imageWidth, y+8, b.String())
}
