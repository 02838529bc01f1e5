package judge

import "fmt"

// judgeMetrics compares what was measured with the rows, and notes rows that
// contradict an invariant whichever job they belong to.
func (b *bench) judgeMetrics(g *Ground) {
	note := func(invariant, what string) {
		b.add([]Violation{{Invariant: invariant, What: what}}, nil, nil)
	}
	for _, m := range g.Collected.Measured {
		if m.Counter && !g.Counters {
			continue
		}
		b.verdict.Checked[measured]++
		if m.Metric != m.Rows {
			note(measured, fmt.Sprintf("%s is %v, the rows say %v", m.Name, m.Metric, m.Rows))
		}
	}
	for _, o := range g.Collected.Oddities {
		b.verdict.Checked[o.Invariant]++
		if o.Count > 0 {
			note(o.Invariant, fmt.Sprintf("%d %s", o.Count, o.What))
		}
	}
}
