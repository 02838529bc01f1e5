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
)

// faultSpans gives, for each kind of run.Kinds, when there were such faults, as
// shares of the axis. Those that touch become one: a thousand faults are no more
// paths than ten.
func faultSpans(run Run, x axis) [][][2]float64 {
	spans := make([][][2]float64, len(run.Kinds))
	for k, kind := range run.Kinds {
		var all [][2]float64
		for _, f := range run.Faults {
			if f.Kind != kind.Kind {
				continue
			}
			from, to := x.at(f.At.Sub(run.Started).Seconds()), x.at(f.Until.Sub(run.Started).Seconds())
			from = min(from, 1-narrowest)
			all = append(all, [2]float64{from, max(to, from+narrowest)})
		}
		slices.SortFunc(all, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		for _, s := range all {
			if n := len(spans[k]); n > 0 && s[0] <= spans[k][n-1][1] {
				spans[k][n-1][1] = max(spans[k][n-1][1], s[1])
			} else {
				spans[k] = append(spans[k], s)
			}
		}
	}
	return spans
}

// faultBands are bands over the whole height of a plot. They are dense when
// together they would cover a good part of it.
func faultBands(run Run, x axis) (bands []band, dense bool) {
	covered := 0.0
	for k, spans := range faultSpans(run, x) {
		var p path
		for _, s := range spans {
			p.stripe(s[0], s[1], 0, 1)
			covered += s[1] - s[0]
		}
		bands = append(bands, band{Color: faultColor(k), Path: p.String()})
	}
	return bands, covered > 0.3
}

func faultColor(k int) string { return fmt.Sprintf("k%d", k%faultColors) }

// faultLanes show each kind in a lane of its own: the legend of the bands in the
// other plots, and readable where they overlap.
func faultLanes(run Run) plot {
	p := plot{
		ID: "faults", Title: "Injected faults", Note: "the same colours mark them in the plots below",
		X: timeAxis(run.Took), Lanes: len(run.Kinds),
	}
	p.Marks = stageMarks(run, p.X)
	lane := 1 / float64(max(len(run.Kinds), 1))
	for k, spans := range faultSpans(run, p.X) {
		var line path
		low := 1 - float64(k+1)*lane
		for _, s := range spans {
			line.stripe(s[0], s[1], low+0.15*lane, low+0.85*lane)
		}
		p.Y.Ticks = append(p.Y.Ticks, tick{percent(low + lane/2), printable(run.Kinds[k].Kind)})
		p.Curves = append(p.Curves, curve{Name: printable(run.Kinds[k].Kind), Color: faultColor(k), Area: true, Path: line.String()})
		p.Description += fmt.Sprintf("%s: %s. ", printable(run.Kinds[k].Kind), times(run.Kinds[k].Times))
	}
	p.Table = table{Head: []string{"at", "kind", "target", "lasted", "hit"}}
	for _, f := range run.Faults[:min(len(run.Faults), tableFaults)] {
		p.Table.Rows = append(p.Table.Rows, []string{
			clockTime(f.At.Sub(run.Started)), printable(f.Kind), printable(f.Target), brief(f.Until.Sub(f.At)), grouped(int64(f.Count)),
		})
	}
	return p
}

// tableFaults is how many faults the page lists one by one.
const tableFaults = 2000

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
