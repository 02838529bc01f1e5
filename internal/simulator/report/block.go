package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

const barWidth = 30

// row is one line of the block: a label, a text and how it is to look.
type row struct {
	label, text string
	style       string
}

// block lays the snapshot out: at most ten rows, made for 80 columns and cut
// where there are fewer.
func (l *Live) block(s Snapshot) []row {
	n := s.Numbers
	rows := []row{
		{printable(l.o.Scenario), orDash(s.Stage), bold},
		{"progress", l.bar(s), ""},
		{"sent", pace(n.Arrivals, l.speed.arrivals, s.Elapsed), ""},
		{"finished", pace(total(n.Finished), l.speed.finished, s.Elapsed), ""},
		{"submit", tails(n.Submit), ""},
		{"finish", tails(n.Finish), ""},
		{"jobs", cmp.Or(listed(n.States), "-"), ""},
	}
	if rest := notAccepted(n); rest != "" {
		rows = append(rows, row{"answers", rest, yellow})
	}
	workers := row{"workers", fmt.Sprintf("%12d", n.Workers), ""}
	if n.Delivered+n.Refused > 0 {
		workers.text += fmt.Sprintf("  deliveries %s, not taken %s", grouped(n.Delivered), grouped(n.Refused))
	}
	rows = append(rows, workers)
	if n.Injected > 0 {
		f := s.LastFault
		last := fmt.Sprintf("last %s %s, %s ago", printable(f.Kind), printable(f.Target), clockTime(s.At.Sub(f.Until)))
		rows = append(rows, row{"faults", fmt.Sprintf("%12s  %s", grouped(n.Injected), last), yellow})
	}
	return rows
}

func pace(n int64, now float64, elapsed time.Duration) string {
	return fmt.Sprintf("%12s  %10s now  %10s average", grouped(n), rate(now), average(n, elapsed))
}

// bar shows elapsed and left.
func (l *Live) bar(s Snapshot) string {
	share := l.progress(s)
	if share < 0 {
		return clockTime(s.Elapsed)
	}
	full := int(share * barWidth)
	text := strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + fmt.Sprintf(" %3.0f %%  %s", share*100, clockTime(s.Elapsed))
	if left, ok := l.left(s, share); ok {
		text += "  left " + clockTime(left)
	}
	return text
}

// left is how long the load goes on at most, as far as it can be known.
func (l *Live) left(s Snapshot, share float64) (time.Duration, bool) {
	if share >= 1 || share < 0.01 && l.o.Duration == 0 {
		return 0, false
	}
	return time.Duration(float64(s.Elapsed) * (1 - share) / max(share, 1e-9)), true
}

func tails(v Latency) string {
	if v.Count == 0 {
		return fmt.Sprintf("%12s", "-")
	}
	return fmt.Sprintf("p50 %8s  p99 %8s  p99.9 %8s  max %8s", brief(v.P50), brief(v.P99), brief(v.P999), brief(v.Max))
}

// listed shows the numbers that are not 0.
func listed(list []Count) string {
	var parts []string
	for _, c := range list {
		if c.N != 0 {
			parts = append(parts, strings.ToLower(printable(c.Name))+" "+grouped(c.N))
		}
	}
	return strings.Join(parts, "  ")
}
