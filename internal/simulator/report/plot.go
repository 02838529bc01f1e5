package report

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// The drawing surface of a plot, stretched over the available width; text stands beside it and keeps its size.
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
	Bands           []curve // all faults of one kind each
	Dense           bool    // so many bands that they must be faint
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

// corner is a place on a plot: shares of its width and height, from below.
type corner struct{ x, y float64 }

// drawn is an SVG path along the corners.
func drawn(corners ...corner) string {
	var out []byte
	command := byte('M')
	for _, c := range corners {
		out = append(out, command)
		out = strconv.AppendFloat(out, math.Round(c.x*plotWidth*10)/10, 'f', -1, 64)
		out = append(out, ' ')
		out = strconv.AppendFloat(out, math.Round((1-c.y)*plotHeight*10)/10, 'f', -1, 64)
		command = 'L'
	}
	return string(out)
}

// bar is a filled rectangle.
func bar(from, to, low, high float64) string {
	return drawn(corner{from, low}, corner{from, high}, corner{to, high}, corner{to, low}) + "Z"
}

// edge follows the values of the steps from, ..., to-1 from middle to middle. The
// first and the last value hold for their whole step, so a single one is seen as well.
func edge(x, y axis, from, to int, step time.Duration, value func(i int) float64) []corner {
	at := func(i float64, v float64) corner { return corner{x.at(i * step.Seconds()), y.at(v)} }
	list := []corner{at(float64(from), value(from))}
	for i := from; i < to; i++ {
		list = append(list, at(float64(i)+0.5, value(i)))
	}
	return append(list, at(float64(to), value(to-1)))
}

// pathOf draws what value gives for each of n steps, with gaps where it gives NaN.
func pathOf(x, y axis, n int, step time.Duration, value func(i int) float64) (path string) {
	for from := 0; from < n; from++ {
		to := from
		for to < n && !math.IsNaN(value(to)) {
			to++
		}
		if to > from {
			path += drawn(edge(x, y, from, to, step, value)...)
			from = to
		}
	}
	return path
}

// areaOf fills between two curves that have no gaps.
func areaOf(x, y axis, n int, step time.Duration, low, high func(i int) float64) string {
	if n == 0 {
		return ""
	}
	below := edge(x, y, 0, n, step, low)
	slices.Reverse(below)
	return drawn(append(edge(x, y, 0, n, step, high), below...)...) + "Z"
}
