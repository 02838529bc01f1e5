package figures

import (
	"fmt"
	"html"
	"strings"
)

// Sizes of a picture, in pixels.
const (
	barHeight  = 13
	barStep    = 18
	titleSpace = 28
	labelWidth = 90
	barWidth   = 420
	imageWidth = labelWidth + barWidth + 120
)

// Picture draws the figures that compare something below each other, as an SVG for light
// and dark pages. The first system is highlighted.
func Picture(list []Figure) string {
	var b strings.Builder
	y := 0
	for _, f := range list {
		if len(f.Sides) < 2 {
			continue
		}
		y += titleSpace
		fmt.Fprintf(&b, `<text class="t" x="0" y="%d">%s</text>`+"\n", y-8, html.EscapeString(f.Name))
		most := 0.0
		for _, v := range f.Sides {
			most = max(most, v.median())
		}
		class := "f"
		for _, v := range f.Sides {
			width := max(1, v.median()/most*barWidth)
			fmt.Fprintf(&b, `<text x="0" y="%d">%s</text><rect class="%s" x="%d" y="%d" width="%.0f" height="%d" rx="2"/>`+
				`<text x="%.0f" y="%d">%s</text>`+"\n", y+11, html.EscapeString(v.Name), class, labelWidth, y, width, barHeight,
				labelWidth+width+8, y+11, number(v.median()))
			y += barStep
			class = "o"
		}
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<style>
text { font: 12px system-ui, sans-serif; fill: #24292f; } .t { font-weight: 600; }
.f { fill: #0b6bcb; } .o { fill: #a9b4c0; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .f { fill: #58a6ff; } .o { fill: #57606a; } }
</style>
%s</svg>
`, imageWidth, y+8, imageWidth, y+8, b.String())
}
