package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	faultColors = 10     // classes k0 to k9
	narrowest   = 0.0016 // of the width: a fault without length is seen as a thin line
	stageRoom   = 12     // per cent of the width that the name of a stage takes
	tableFaults = 2000   // how many the page lists one by one
)

// span is a stretch of an axis, in shares of it.
type span struct{ from, to float64 }

// faultSpans gives, for each kind of run.Kinds, when there were such faults. Those
// that touch become one: a thousand faults are no more paths than ten.
func faultSpans(run Run) [][]span {
	x, spans := timeAxis(run.Took), make([][]span, len(run.Kinds))
	for k, kind := range run.Kinds {
		var all []span
		for _, f := range run.Faults {
			if f.Kind == kind.Kind {
				from := min(x.at(f.At.Sub(run.Started).Seconds()), 1-narrowest)
				all = append(all, span{from, max(x.at(f.Until.Sub(run.Started).Seconds()), from+narrowest)})
			}
		}
		slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
		for _, s := range all {
			if n := len(spans[k]); n > 0 && s.from <= spans[k][n-1].to {
				spans[k][n-1].to = max(spans[k][n-1].to, s.to)
			} else {
				spans[k] = append(spans[k], s)
			}
		}
	}
	return spans
}

// faultBands are bands over the whole height of a plot, dense when together they cover a good part of it.
func faultBands(spans [][]span) (bands []curve, dense bool) {
	covered := 0.0
	for k, kind := range spans {
		b := curve{Color: faultColor(k)}
		for _, s := range kind {
			b.Path += bar(s.from, s.to, 0, 1)
			covered += s.to - s.from
		}
		bands = append(bands, b)
	}
	return bands, covered > 0.3
}

func faultColor(k int) string { return fmt.Sprintf("k%d", k%faultColors) }

// faultLanes show each kind in its own lane, which is also the legend of the bands in the other plots.
func faultLanes(run Run, spans [][]span) *plot {
	if len(run.Kinds) == 0 {
		return nil
	}
	p := plot{
		ID: "faults", Title: "Injected faults", Note: "the same colours mark them in the plots below",
		X: timeAxis(run.Took), Lanes: len(run.Kinds),
	}
	p.Marks = stageMarks(run, p.X)
	lane := 1 / float64(len(run.Kinds))
	for k, kind := range run.Kinds {
		c, low := curve{Name: printable(kind.Kind), Color: faultColor(k), Area: true}, 1-float64(k+1)*lane
		for _, s := range spans[k] {
			c.Path += bar(s.from, s.to, low+0.15*lane, low+0.85*lane)
		}
		p.Y.Ticks = append(p.Y.Ticks, tick{percent(low + lane/2), c.Name})
		p.Curves = append(p.Curves, c)
		p.Description += fmt.Sprintf("%s: %s. ", c.Name, times(kind.Times))
	}
	p.Table = table{Head: []string{"at", "kind", "target", "lasted", "hit"}}
	for _, f := range run.Faults[:min(len(run.Faults), tableFaults)] {
		p.Table.Rows = append(p.Table.Rows, []string{
			clockTime(f.At.Sub(run.Started)), printable(f.Kind), printable(f.Target), brief(f.Until.Sub(f.At)), grouped(int64(f.Count)),
		})
	}
	return &p
}

func stageMarks(run Run, x axis) []stageMark {
	if len(run.Stages) < 2 {
		return nil
	}
	var marks []stageMark
	free := 0.0
	for _, s := range run.Stages {
		m := stageMark{At: percent(x.at(max(s.Begun.Sub(run.Started), time.Duration(0)).Seconds()))}
		if m.At >= free && m.At <= 100-stageRoom/2 {
			m.Label, free = cut(printable(s.Name), 16), m.At+stageRoom
		}
		marks = append(marks, m)
	}
	return marks
}
