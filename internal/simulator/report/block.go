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

// block lays the snapshot out: at most ten rows, for 80 columns, cut where there are fewer.
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

// bar shows the share of the load that is over, by time or by number, what is nearer
// to its end, and how long it went on and still goes on at most. A load without an
// end has no share.
func (l *Live) bar(s Snapshot) string {
	share := -1.0
	if l.o.Duration > 0 {
		share = s.Elapsed.Seconds() / l.o.Duration.Seconds()
	}
	if l.o.Jobs > 0 {
		share = max(share, float64(s.Numbers.Arrivals)/float64(l.o.Jobs))
	}
	if share < 0 {
		return clockTime(s.Elapsed)
	}
	share = min(share, 1)
	full := int(share * barWidth)
	text := strings.Repeat("█", full) + strings.Repeat("░", barWidth-full) + fmt.Sprintf(" %3.0f %%  %s", share*100, clockTime(s.Elapsed))
	if share < 1 && (share >= 0.01 || l.o.Duration > 0) {
		text += "  left " + clockTime(time.Duration(float64(s.Elapsed)*(1-share)/max(share, 1e-9)))
	}
	return text
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

// line shows all of it in one line.
func (l *Live) line(s Snapshot) string {
	n := s.Numbers
	parts := []string{
		clockTime(s.Elapsed), orDash(s.Stage),
		fmt.Sprintf("sent %s (%s)", grouped(n.Arrivals), rate(l.speed.arrivals)),
		fmt.Sprintf("finished %s (%s)", grouped(total(n.Finished)), rate(l.speed.finished)),
		fmt.Sprintf("submit p50 %s p99 %s", brief(n.Submit.P50), brief(n.Submit.P99)),
		fmt.Sprintf("finish p50 %s p99 %s", brief(n.Finish.P50), brief(n.Finish.P99)),
	}
	if rest := notAccepted(n); rest != "" {
		parts = append(parts, rest)
	}
	if n.Workers > 0 { // they are ours
		parts = append(parts, fmt.Sprintf("workers %d", n.Workers))
	}
	if n.Injected > 0 {
		parts = append(parts, "faults "+grouped(n.Injected))
	}
	return strings.Join(parts, "  ")
}

// notAccepted lists the answers that are no new jobs.
func notAccepted(n Numbers) string {
	var list []string
	for _, c := range n.Answers {
		if c.Name != Accepted && c.N > 0 {
			list = append(list, fmt.Sprintf("%s %s", printable(c.Name), grouped(c.N)))
		}
	}
	return strings.Join(list, "  ")
}
