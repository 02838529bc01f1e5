package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// sample maps figures, such as acceptedFigure, to the results of one side in one round.
type sample map[string]float64

func (s sample) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		all = append(all, name+" "+number(s[name]))
	}
	return strings.Join(all, "; ")
}

type side struct {
	name    string
	measure func(sample)
	samples []sample
}

func (s side) values(figure string) (values []float64) {
	for _, got := range s.samples {
		if value, ok := got[figure]; ok {
			values = append(values, value)
		}
	}
	return values
}

// compare measures all sides in each round. The order alternates, so a drift of the machine's speed favors no side. Each line of the
// table compares a figure of the first side with the same figure of another side, if another side has this figure.
func (l *lab) compare(sides []side, figures ...string) {
	for round := range l.rounds {
		for i := range sides {
			if round%2 == 1 {
				i = len(sides) - 1 - i
			}
			got := sample{}
			if err := l.attempt(func() { sides[i].measure(got) }); err != nil {
				check(fmt.Errorf("%s: %w", sides[i].name, err))
			}
			fmt.Printf("  round %d of %d, %s: %v\n", round+1, l.rounds, sides[i].name, got)
			sides[i].samples = append(sides[i].samples, got)
		}
	}
	for _, figure := range figures {
		ours, compared := sides[0].values(figure), false
		for _, other := range sides[1:] {
			if theirs := other.values(figure); len(ours) > 0 && len(theirs) > 0 {
				compared = true
				l.lines = append(l.lines, []string{figure, number(quantile(ours, 0.5)),
					number(quantile(theirs, 0.5)) + " (" + other.name + ")", ratio(ours, theirs)})
			}
		}
		if len(ours) > 0 && !compared {
			l.lines = append(l.lines, []string{figure, number(quantile(ours, 0.5)), "", ""})
		}
	}
}

func (l *lab) programs(measure func(service, sample)) (sides []side) {
	for _, s := range l.services {
		sides = append(sides, side{name: s.name, measure: func(got sample) { measure(s, got) }})
	}
	return sides
}

func ratio(ours, theirs []float64) string {
	var ratios []float64
	for i := range min(len(ours), len(theirs)) {
		ratios = append(ratios, ours[i]/theirs[i])
	}
	text := number(quantile(ratios, 0.5))
	if len(ratios) > 1 {
		text += fmt.Sprintf(" (%s to %s)", number(slices.Min(ratios)), number(slices.Max(ratios)))
	}
	return text
}

// quantile returns the q-quantile of the values, interpolated between two neighbors; 0 if there are none.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted, at := slices.Sorted(slices.Values(values)), q*float64(len(values)-1)
	below := int(at)
	return sorted[below] + (at-float64(below))*(sorted[min(below+1, len(sorted)-1)]-sorted[below])
}

// number formats a value with three significant digits, but keeps all digits before the decimal point.
func number(v float64) string {
	if v >= 100 || v <= -100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func writeTable(w io.Writer, lines [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	for _, line := range append([][]string{{"figure", "ForgeRun", "compared with", "ratio"}, {"---", "---", "---", "---"}}, lines...) {
		_, _ = fmt.Fprintf(table, "| %s\t|\n", strings.Join(line, "\t| "))
	}
	return table.Flush()
}
