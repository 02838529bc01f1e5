package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// sample holds one side's results of one round: values by the names of figures. A missing value does not apply to the side.
type sample map[string]float64

func (s sample) String() string {
	var all []string
	for name, value := range s {
		all = append(all, name+" "+number(value))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// side is one of the systems of a comparison.
type side struct {
	name    string
	measure func() (sample, error)
	samples []sample // one of each round
}

// programs returns the sides of an experiment that measures each program in the same way.
func (l *lab) programs(ctx context.Context, measure func(context.Context, *lab, service) (sample, error)) (sides []side) {
	for _, s := range l.services {
		sides = append(sides, side{name: s.name, measure: func() (sample, error) { return measure(ctx, l, s) }})
	}
	return sides
}

// figure is a value of all sides that have it, round by round. The first side is compared with the others.
type figure struct {
	name  string // with the unit
	sides []values
}

type values struct {
	name   string
	values []float64
}

// inTurns measures the sides round after round, each time in the reverse order, so that a drift of the machine's speed favors none. It
// returns the named figures.
func inTurns(rounds int, sides []side, names ...string) (list []figure, err error) {
	for round := range rounds {
		for i := range sides {
			if round%2 == 1 {
				i = len(sides) - 1 - i
			}
			got, err := sides[i].measure()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", sides[i].name, err)
			}
			fmt.Printf("  round %d of %d, %s: %v\n", round+1, rounds, sides[i].name, got)
			sides[i].samples = append(sides[i].samples, got)
		}
	}
	for _, name := range names {
		f := figure{name: name}
		for _, s := range sides {
			v := values{name: s.name}
			for _, got := range s.samples {
				if value, ok := got[name]; ok {
					v.values = append(v.values, value)
				}
			}
			if len(v.values) > 0 {
				f.sides = append(f.sides, v)
			}
		}
		list = append(list, f)
	}
	return list, nil
}

// median is 0 for no values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted, n := slices.Sorted(slices.Values(values)), len(values)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// ratio is the median of the rounds' ratios, with the smallest and the largest of them.
func (v values) ratio(to values) string {
	var ratios []float64
	for i := range min(len(v.values), len(to.values)) {
		ratios = append(ratios, v.values[i]/to.values[i])
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

// writeTable writes the figures in Markdown, with a line for each comparison.
func writeTable(w io.Writer, list []figure) error {
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	line := func(a, b, c, d string) { _, _ = fmt.Fprintf(table, "| %s\t| %s\t| %s\t| %s\t|\n", a, b, c, d) }
	line("figure", "measured", "compared with", "ratio")
	line("---", "---", "---", "---")
	for _, f := range list {
		if len(f.sides) == 0 {
			continue
		}
		ours := f.sides[0]
		for _, other := range f.sides[1:] {
			line(f.name, number(median(ours.values)), number(median(other.values))+" ("+other.name+")", ours.ratio(other))
		}
		if len(f.sides) == 1 {
			line(f.name, number(median(ours.values)), "", "")
		}
	}
	return table.Flush()
}
