package report

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// colors are the classes of what has a fixed meaning. Others are given in turn.
var colors = map[string]string{
	"CREATED": "created", "QUEUED": "queued", "ASSIGNED": "assigned", "RUNNING": "running",
	"SUCCEEDED": "succeeded", "FAILED": "failed", "CANCELED": "canceled",
	Refused: "queued", Failed: "failed", Unanswered: "created",
}

func colorOf(name string, i int) string {
	if c, ok := colors[name]; ok {
		return c
	}
	return faultColor(i)
}

// final are the states that jobs end in, plotted apart: in a long run they would hide the others.
var final = []string{"SUCCEEDED", "FAILED", "CANCELED"}

// frame is what all plots over time share.
type frame struct {
	run    Run
	n      int
	step   time.Duration
	shared plot
}

// line is a series of a plot over time.
type line struct {
	name, color string
	dash        bool
	low         func(i int) float64 // lower edge of an area; nil: it is a line
	value       func(i int) float64 // NaN: a gap; nil: in the table only
	text        func(i int) string  // in the table
}

// timePlots are all plots over time.
func timePlots(run Run, spans [][]span) []plot {
	f := frame{run: run, n: len(run.Series.Arrivals), step: run.Series.Step}
	f.shared = plot{X: timeAxis(run.Took), Timed: true}
	f.shared.Bands, f.shared.Dense = faultBands(spans)
	f.shared.Marks = stageMarks(run, f.shared.X)
	s := run.Series
	var active, ended []Line
	for _, l := range s.States {
		if slices.Contains(final, l.Name) {
			ended = append(ended, l)
		} else if slices.Max(append(l.Values, 0)) > 0 || colors[l.Name] != "" {
			active = append(active, l)
		}
	}
	plots := []plot{
		f.traffic(),
		f.latency("submit", "Submit latency", "from when a job was to be submitted to the answer", s.Submit),
		f.latency("finish", "Finish latency", "from when a job was to be submitted to learning of its final state", s.Finish),
		f.stack("active", "Jobs under way", "by state, as the client last saw them", active),
		f.stack("ended", "Jobs ended", "by state, since the start", ended),
		f.workers(),
	}
	if run.Numbers.Delivered+run.Numbers.Refused > 0 {
		plots = append(plots, f.rates("deliveries", "Webhook deliveries", "that came to the receiver, per second",
			[]Line{{"taken", s.Delivered}, {"not taken", s.Refused}}, []string{"succeeded", "failed"}))
	}
	return plots
}

// plot draws the lines and puts their numbers into the table, a row a step.
func (f frame) plot(id, title, note string, y axis, lines ...line) plot {
	p := f.shared
	p.ID, p.Title, p.Note, p.Y, p.Table.Head = id, title, note, y, []string{"from"}
	for _, l := range lines {
		p.Table.Head = append(p.Table.Head, l.name)
		c := curve{Name: l.name, Color: l.color, Dash: l.dash, Area: l.low != nil}
		switch {
		case c.Area:
			c.Path = areaOf(p.X, y, f.n, f.step, l.low, l.value)
		case l.value != nil:
			c.Path = pathOf(p.X, y, f.n, f.step, l.value)
		default:
			continue
		}
		p.Curves = append(p.Curves, c)
	}
	for i := range f.n {
		row := []string{clockTime(time.Duration(i) * f.step)}
		for _, l := range lines {
			row = append(row, l.text(i))
		}
		p.Table.Rows = append(p.Table.Rows, row)
	}
	return p
}

func (f frame) traffic() plot {
	completed := make([]int64, f.n)
	for _, l := range f.run.Series.Finished {
		for i, n := range l.Values {
			completed[i] += n
		}
	}
	lines, colors := []Line{{"arrivals", f.run.Series.Arrivals}, {"completions", completed}}, []string{"running", "succeeded"}
	for i, l := range f.run.Series.Answers {
		if l.Name != Accepted && l.Name != Replayed && number(f.run.Numbers.Answers, l.Name) != 0 {
			lines, colors = append(lines, l), append(colors, colorOf(l.Name, i))
		}
	}
	return f.rates("traffic", "Arrivals and completions", "per second", lines, colors)
}

// rates shows counts per second.
func (f frame) rates(id, title, note string, series []Line, colors []string) plot {
	var lines []line
	top, description := 0.0, ""
	for k, l := range series {
		perStep := func(i int) float64 { return perSecond(l.Values[i], f.width(i)) }
		var sum int64
		for i, n := range l.Values {
			top = max(top, perStep(i))
			sum += n
		}
		description += fmt.Sprintf("%s: %s in all. ", l.Name, grouped(sum))
		lines = append(lines, line{
			name: l.Name, color: colors[k], dash: k > 1, value: perStep,
			text: func(i int) string { return digits(perStep(i)) },
		})
	}
	p := f.plot(id, title, note, linearAxis(top, false), lines...)
	p.Description = description + fmt.Sprintf("The highest rate is %s.", rate(top))
	return p
}

// width is the length of the i-th step. The end of the run may cut the last one short; less than half a step counts
// in full.
func (f frame) width(i int) time.Duration {
	w := f.run.Took - time.Duration(i)*f.step
	if w < f.step/2 || w > f.step {
		return f.step
	}
	return w
}

func (f frame) latency(id, title, note string, tails []Tail) plot {
	least, most := longest, time.Duration(0)
	for _, t := range tails {
		if t.Count > 0 {
			least, most = min(least, t.P50), max(most, t.P99)
		}
	}
	of := func(name, color string, percentile func(Tail) time.Duration) line {
		return line{name: name, color: color, value: func(i int) float64 {
			if tails[i].Count == 0 {
				return math.NaN()
			}
			return percentile(tails[i]).Seconds()
		}, text: func(i int) string { return orNone(tails[i].Count, percentile(tails[i])) }}
	}
	p := f.plot(id+"-latency", title, note, latencyAxis(least, most),
		line{name: "count", text: func(i int) string { return grouped(tails[i].Count) }},
		of("p50", "running", func(t Tail) time.Duration { return t.P50 }), of("p99", "high", func(t Tail) time.Duration { return t.P99 }))
	slices.Reverse(p.Curves)
	p.Description = nothingMeasured
	if most > 0 {
		p.Description = fmt.Sprintf("On a logarithmic scale. The median lies above %s, the 99th percentile below %s.", brief(least), brief(most))
	}
	return p
}

const nothingMeasured = "There was nothing to measure."

// latencyAxis is a logarithmic one; most is 0 where nothing was measured.
func latencyAxis(least, most time.Duration) axis {
	if most == 0 {
		least, most = time.Millisecond, time.Second
	}
	return logAxis(least, most)
}

func (f frame) stack(id, title, note string, series []Line) plot {
	var lines []line
	low, top := make([]float64, f.n), 0.0
	for k, l := range series {
		below, high := low, make([]float64, f.n)
		for i := range f.n {
			high[i] = below[i] + float64(max(l.Values[i], 0))
			top = max(top, high[i])
		}
		lines = append(lines, line{
			name: l.Name, color: colorOf(l.Name, k),
			low: func(i int) float64 { return below[i] }, value: func(i int) float64 { return high[i] },
			text: func(i int) string { return grouped(l.Values[i]) },
		})
		low = high
	}
	p := f.plot(id, title, note, linearAxis(top, true), lines...)
	p.Description = fmt.Sprintf("Stacked areas. The highest sum is %s jobs.", grouped(int64(top)))
	return p
}

func (f frame) workers() plot {
	values, most := f.run.Series.Workers, mostWorkers(f.run)
	p := f.plot("workers", "Worker processes", "", linearAxis(float64(most)+0.5, true), // the line stays off the upper edge
		line{
			name: "workers", color: "high", value: func(i int) float64 { return float64(values[i]) },
			text: func(i int) string { return grouped(values[i]) },
		})
	p.Description = fmt.Sprintf("At most %s at a time.", grouped(most))
	return p
}

func mostWorkers(run Run) int64 { return slices.Max(append([]int64{0}, run.Series.Workers...)) }

// distributionPlot shows which share of all took at most how long.
func distributionPlot(n Numbers) plot {
	p := plot{ID: "distribution", Title: "Latency by percentile", Note: "the share of all that took at most so long"}
	least, most := longest, time.Duration(0)
	for _, l := range n.latencies() {
		if l.Count > 0 {
			least, most = min(least, l.Min), max(most, l.Max)
			p.Description += fmt.Sprintf("%s: half took at most %s, 99 %% at most %s, the longest %s. ",
				l.Name, brief(l.P50), brief(l.P99), brief(l.Max))
		}
	}
	if most == 0 {
		p.Description = nothingMeasured
	}
	p.X, p.Y = tailAxis(max(n.Submit.Count, n.Finish.Count)), latencyAxis(least, most)
	for i, l := range n.latencies() {
		var corners []corner
		for _, q := range l.Distribution {
			corners = append(corners, corner{p.X.at(min(q.Q, 1-1/float64(max(l.Count, 1)))), p.Y.at(q.Value.Seconds())})
		}
		p.Curves = append(p.Curves, curve{Name: l.Name, Color: []string{"running", "succeeded"}[i], Dash: i > 0, Path: drawn(corners...)})
	}
	p.Table.Head = []string{"share", "submit", "finish"}
	for _, q := range distribution {
		row := []string{short(math.Round(q*1e7)/1e5) + " %", quantile(n.Submit, q), quantile(n.Finish, q)}
		if row[1] != "-" || row[2] != "-" {
			p.Table.Rows = append(p.Table.Rows, row)
		}
	}
	return p
}

func quantile(l Latency, q float64) string {
	if i := slices.IndexFunc(l.Distribution, func(have Quantile) bool { return have.Q == q }); i >= 0 {
		return brief(l.Distribution[i].Value)
	}
	return "-"
}
