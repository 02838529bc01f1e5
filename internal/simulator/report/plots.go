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
}

func colorOf(name string, i int) string {
	if c, ok := colors[name]; ok {
		return c
	}
	return fmt.Sprintf("k%d", i%faultColors)
}

// final are the states that jobs end in: they are plotted apart, as in a long run
// nothing else could be seen beside them.
var final = []string{"SUCCEEDED", "FAILED", "CANCELED"}

// frame is what all plots over time share.
type frame struct {
	run   Run
	n     int
	step  time.Duration
	x     axis
	bands []band
	dense bool
	marks []stageMark
}

// timePlots are all plots over time.
func timePlots(run Run) []plot {
	f := frame{run: run, n: len(run.Series.Arrivals), step: run.Series.Step, x: timeAxis(run.Took)}
	f.bands, f.dense = faultBands(run, f.x)
	f.marks = stageMarks(run, f.x)
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
		f.rates("traffic", "Arrivals and completions", "per second", f.traffic()),
		f.latency("submit", "Submit latency", "from when a job was to be submitted to the answer", s.Submit),
		f.latency("finish", "Finish latency", "from when a job was to be submitted to learning of its final state", s.Finish),
		f.stack("active", "Jobs under way", "by state, as the client last saw them", active),
		f.stack("ended", "Jobs ended", "by state, since the start", ended),
		f.workers(),
	}
	if run.Numbers.Delivered+run.Numbers.Refused > 0 {
		plots = append(plots, f.rates("deliveries", "Webhook deliveries", "that came to the receiver, per second", []rateLine{
			{"taken", "succeeded", s.Delivered}, {"not taken", "failed", s.Refused},
		}))
	}
	return plots
}

// rateLine is a series of counts that is shown per second.
type rateLine struct {
	name, color string
	values      []int64
}

func (f frame) traffic() []rateLine {
	completed := make([]int64, f.n)
	for _, l := range f.run.Series.Finished {
		completed = sum(completed, l.Values)
	}
	lines := []rateLine{{"arrivals", "running", f.run.Series.Arrivals}, {"completions", "succeeded", completed}}
	for i, l := range f.run.Series.Answers {
		if l.Name == Accepted || l.Name == Replayed || number(f.run.Numbers.Answers, l.Name) == 0 {
			continue
		}
		color := map[string]string{Refused: "queued", Failed: "failed", Unanswered: "created"}[l.Name]
		if color == "" {
			color = colorOf(l.Name, i)
		}
		lines = append(lines, rateLine{l.Name, color, l.Values})
	}
	return lines
}

func (f frame) plot(id, title, note string) plot {
	return plot{ID: id, Title: title, Note: note, X: f.x, Bands: f.bands, Dense: f.dense, Marks: f.marks, Timed: true}
}

func (f frame) rates(id, title, note string, lines []rateLine) plot {
	perStep := func(l rateLine, i int) float64 { return perSecond(valueAt(l.values, i), f.width(i)) }
	top := 0.0
	for _, l := range lines {
		for i := range f.n {
			top = max(top, perStep(l, i))
		}
	}
	p := f.plot(id, title, note)
	p.Y = linearAxis(top, false)
	p.Table = f.table(func(i int) []string {
		var row []string
		for _, l := range lines {
			row = append(row, digits(perStep(l, i)))
		}
		return row
	})
	for k, l := range lines {
		p.Table.Head = append(p.Table.Head, l.name)
		p.Curves = append(p.Curves, curve{
			Name: l.name, Color: l.color, Dash: k > 1,
			Path: pathOf(p.X, p.Y, f.n, f.step, func(i int) float64 { return perStep(l, i) }),
		})
		p.Description += fmt.Sprintf("%s: %s in all. ", l.name, grouped(totalOf(l.values)))
	}
	p.Description += fmt.Sprintf("The highest rate is %s.", rate(top))
	return p
}

// width is the length of the i-th step; the last one may be cut short by the end
// of the run. Less than half a step counts in full: its rate would mean nothing.
func (f frame) width(i int) time.Duration {
	w := f.run.Took - time.Duration(i)*f.step
	if w < f.step/2 || w > f.step {
		return f.step
	}
	return w
}

func (f frame) latency(id, title, note string, tails []Tail) plot {
	p := f.plot(id+"-latency", title, note)
	least, most := longest, time.Duration(0)
	for _, t := range tails {
		if t.Count > 0 {
			least, most = min(least, t.P50), max(most, t.P99)
		}
	}
	p.latencyAxis(least, most)
	if most > 0 {
		p.Description = fmt.Sprintf("On a logarithmic scale. The median lies above %s, the 99th percentile below %s.", brief(least), brief(most))
	}
	draw := func(value func(Tail) time.Duration) string {
		return pathOf(p.X, p.Y, f.n, f.step, func(i int) float64 {
			if tails[i].Count == 0 {
				return math.NaN()
			}
			return value(tails[i]).Seconds()
		})
	}
	p.Curves = []curve{
		{Name: "p99", Color: "high", Path: draw(func(t Tail) time.Duration { return t.P99 })},
		{Name: "p50", Color: "running", Path: draw(func(t Tail) time.Duration { return t.P50 })},
	}
	p.Table = f.table(func(i int) []string {
		if tails[i].Count == 0 {
			return []string{"0", "-", "-"}
		}
		return []string{grouped(tails[i].Count), brief(tails[i].P50), brief(tails[i].P99)}
	})
	p.Table.Head = append(p.Table.Head, "count", "p50", "p99")
	return p
}

// latencyAxis is a logarithmic one; most is 0 where nothing was measured.
func (p *plot) latencyAxis(least, most time.Duration) {
	if most == 0 {
		least, most = time.Millisecond, time.Second
		p.Description = "There was nothing to measure."
	}
	p.Y = logAxis(least, most)
}

func (f frame) stack(id, title, note string, lines []Line) plot {
	p := f.plot(id, title, note)
	height := make([][]float64, len(lines)+1) // of the upper edge of each
	height[0] = make([]float64, f.n)
	top := 0.0
	for k, l := range lines {
		height[k+1] = make([]float64, f.n)
		for i := range f.n {
			height[k+1][i] = height[k][i] + float64(max(valueAt(l.Values, i), 0))
			top = max(top, height[k+1][i])
		}
	}
	p.Y = linearAxis(top, true)
	p.Table = f.table(func(i int) []string {
		var row []string
		for _, l := range lines {
			row = append(row, grouped(valueAt(l.Values, i)))
		}
		return row
	})
	for k, l := range lines {
		p.Table.Head = append(p.Table.Head, l.Name)
		p.Curves = append(p.Curves, curve{
			Name: l.Name, Color: colorOf(l.Name, k), Area: true,
			Path: areaOf(p.X, p.Y, f.n, f.step, func(i int) float64 { return height[k][i] }, func(i int) float64 { return height[k+1][i] }),
		})
	}
	p.Description = fmt.Sprintf("Stacked areas. The highest sum is %s jobs.", grouped(int64(top)))
	return p
}

func (f frame) workers() plot {
	p := f.plot("workers", "Worker processes", "")
	values := f.run.Series.Workers
	most := slices.Max(append([]int64{0}, values...))
	p.Y = linearAxis(float64(most)+0.5, true) // the line stays off the upper edge
	line := pathOf(p.X, p.Y, f.n, f.step, func(i int) float64 { return float64(values[i]) })
	p.Curves = []curve{{Name: "workers", Color: "high", Path: line}}
	p.Table = f.table(func(i int) []string { return []string{grouped(values[i])} })
	p.Table.Head = append(p.Table.Head, "workers")
	p.Description = fmt.Sprintf("At most %s at a time.", grouped(most))
	return p
}

// table has a row a step, which begins with the time.
func (f frame) table(row func(i int) []string) table {
	t := table{Head: []string{"from"}}
	for i := range f.n {
		t.Rows = append(t.Rows, append([]string{clockTime(time.Duration(i) * f.step)}, row(i)...))
	}
	return t
}

func totalOf(values []int64) int64 {
	var n int64
	for _, v := range values {
		n += v
	}
	return n
}

// distributionPlot shows which share of all took at most how long.
func distributionPlot(n Numbers) plot {
	p := plot{ID: "distribution", Title: "Latency by percentile", Note: "the share of all that took at most so long"}
	least, most := longest, time.Duration(0)
	for _, l := range n.latencies() {
		if l.Count > 0 {
			least, most = min(least, l.Min), max(most, l.Max)
		}
	}
	p.latencyAxis(least, most)
	p.X = tailAxis(max(n.Submit.Count, n.Finish.Count))
	p.Table.Head = []string{"share", "submit", "finish"}
	for i, l := range n.latencies() {
		var line path
		for k, q := range l.Distribution {
			x, y := p.X.at(min(q.Q, 1-1/float64(max(l.Count, 1)))), p.Y.at(q.Value.Seconds())
			if k == 0 {
				line.move(x, y)
			} else {
				line.line(x, y)
			}
		}
		p.Curves = append(p.Curves, curve{Name: l.Name, Color: []string{"running", "succeeded"}[i], Dash: i > 0, Path: line.String()})
		if l.Count > 0 {
			p.Description += fmt.Sprintf("%s: half took at most %s, 99 %% at most %s, the longest %s. ",
				l.Name, brief(l.P50), brief(l.P99), brief(l.Max))
		}
	}
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
