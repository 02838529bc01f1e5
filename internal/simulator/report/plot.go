package report

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The drawing surface of a plot. It is stretched over whatever width there is;
// text stands beside it and keeps its size.
const (
	plotWidth  = 1000
	plotHeight = 250
)

// plot is a figure with all its template needs.
type plot struct {
	ID, Title, Note string
	Description     string // for those who do not see it
	X, Y            axis
	Curves          []curve
	Bands           []band
	Dense           bool // so many bands that they must be faint
	Marks           []stageMark
	Lanes           int // height in lanes; 0: a plot of the usual height
	Timed           bool
	Table           table
}

// curve is one line or area with its place in the legend.
type curve struct {
	Name  string
	Color string // class
	Area  bool
	Dash  bool
	Path  string
}

// band is all faults of one kind in a plot.
type band struct {
	Color string
	Path  string
}

// stageMark is where a stage begins. Label is empty where there is no room.
type stageMark struct {
	At    float64 // per cent
	Label string
}

// table has the numbers behind a plot.
type table struct {
	Head []string
	Rows [][]string
}

// pathOf draws what value gives for each of n steps, and leaves gaps where it
// gives NaN. The first and the last value of a stretch hold for their whole step,
// so that a single one is seen as well.
func pathOf(x, y axis, n int, step time.Duration, value func(i int) float64) string {
	var p path
	open := false
	for i := range n {
		v := value(i)
		if math.IsNaN(v) {
			open = false
			continue
		}
		at := func(share float64) float64 { return x.at((float64(i) + share) * step.Seconds()) }
		if !open {
			p.move(at(0), y.at(v))
		}
		p.line(at(0.5), y.at(v))
		if i+1 == n || math.IsNaN(value(i+1)) {
			p.line(at(1), y.at(v))
		}
		open = true
	}
	return p.String()
}

// areaOf fills between two curves that have no gaps.
func areaOf(x, y axis, n int, step time.Duration, low, high func(i int) float64) string {
	if n == 0 {
		return ""
	}
	var p path
	at := func(i, share float64) float64 { return x.at((i + share) * step.Seconds()) }
	p.move(0, y.at(high(0)))
	for i := range n {
		p.line(at(float64(i), 0.5), y.at(high(i)))
	}
	p.line(at(float64(n), 0), y.at(high(n-1)))
	p.line(at(float64(n), 0), y.at(low(n-1)))
	for i := n - 1; i >= 0; i-- {
		p.line(at(float64(i), 0.5), y.at(low(i)))
	}
	p.line(0, y.at(low(0)))
	p.close()
	return p.String()
}

// path is the text of an SVG path, from shares of width and height.
type path struct{ strings.Builder }

func (p *path) move(x, y float64) { p.to('M', x, y) }
func (p *path) line(x, y float64) { p.to('L', x, y) }
func (p *path) close()            { p.WriteByte('Z') }

func (p *path) to(command byte, x, y float64) {
	p.WriteByte(command)
	p.number(x * plotWidth)
	p.WriteByte(' ')
	p.number((1 - y) * plotHeight)
}

func (p *path) number(v float64) {
	p.WriteString(strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64))
}

// vertical is a line over the whole height, at per cent of the width.
func (p *path) vertical(at float64) {
	p.move(at/100, 0)
	p.line(at/100, 1)
}

// stripe is a bar between two heights.
func (p *path) stripe(from, to, low, high float64) {
	p.move(from, low)
	p.line(from, high)
	p.line(to, high)
	p.line(to, low)
	p.close()
}

// Grid are lines at the ticks.
func (p plot) Grid() string {
	var line path
	if p.Lanes == 0 {
		for _, t := range p.Y.Ticks {
			line.move(0, t.At/100)
			line.line(1, t.At/100)
		}
	}
	for _, t := range p.X.Ticks {
		line.vertical(t.At)
	}
	return line.String()
}

// MarkPath are lines where stages begin.
func (p plot) MarkPath() string {
	var line path
	for _, m := range p.Marks {
		line.vertical(m.At)
	}
	return line.String()
}

// LaneHeight is the height of the plot in pixels.
func (p plot) LaneHeight() int { return 18 * p.Lanes }
