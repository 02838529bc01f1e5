// Package figures measures systems in turns and writes down what came of it: medians of
// the rounds, and of the ratios of each round.
package figures

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Side is one of the systems that are compared.
type Side[T any] struct {
	Name    string
	Measure func() (T, error)
	Samples []T // one of each round
}

// InTurns measures the sides, round after round, in an order that is reversed each
// time: a machine whose speed drifts favors none of them.
func InTurns[T any](rounds int, sides ...Side[T]) ([]Side[T], error) {
	for round := range rounds {
		for i := range sides {
			if round%2 == 1 {
				i = len(sides) - 1 - i
			}
			side := &sides[i]
			sample, err := side.Measure()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side.Name, err)
			}
			fmt.Printf("  round %d of %d, %s: %v\n", round+1, rounds, side.Name, sample)
			side.Samples = append(side.Samples, sample)
		}
	}
	return sides, nil
}

// Figure is one value of all sides that have it, the one of interest first.
type Figure struct {
	Name  string // with the unit
	Sides []Values
}

// Values are those of one side, round by round.
type Values struct {
	Name   string
	Values []float64
}

// New takes a value of each side's samples. A side has none when it is 0.
func New[T any](name string, sides []Side[T], of func(T) float64) Figure {
	f := Figure{Name: name}
	for _, side := range sides {
		v := Values{Name: side.Name}
		for _, s := range side.Samples {
			v.Values = append(v.Values, of(s))
		}
		if v.median() != 0 {
			f.Sides = append(f.Sides, v)
		}
	}
	return f
}

func (v Values) median() float64 { return median(v.Values) }

// median is 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio is the median of the rounds' ratios, with the smallest and the largest of them.
func (v Values) ratio(to Values) string {
	var ratios []float64
	for i := range min(len(v.Values), len(to.Values)) {
		ratios = append(ratios, v.Values[i]/to.Values[i])
	}
	text := number(median(ratios))
	if len(ratios) > 1 {
		text += fmt.Sprintf(" (%s to %s)", number(slices.Min(ratios)), number(slices.Max(ratios)))
	}
	return text
}

// number has three significant digits, more only before the point.
func number(v float64) string {
	if v >= 100 || v <= -100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// WriteTable writes the figures in Markdown, with a line for each comparison.
func WriteTable(w io.Writer, list []Figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(a, b, c, d string) { _, _ = fmt.Fprintf(table, "| %s\t| %s\t| %s\t| %s\t|\n", a, b, c, d) }
	line("figure", "measured", "compared with", "ratio")
	line("---", "---", "---", "---")
	for _, f := range list {
		if len(f.Sides) == 0 {
			continue
		}
		ours := f.Sides[0]
		for _, other := range f.Sides[1:] {
			line(f.Name, number(ours.median()), number(other.median())+" ("+other.Name+")", ours.ratio(other))
		}
		if len(f.Sides) == 1 {
			line(f.Name, number(ours.median()), "", "")
		}
	}
	return table.Flush()
}
