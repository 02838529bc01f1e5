package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/verdict"
)

// Sizes of the timeline. The timeline has `bins` time steps. Each time step is one SVG unit wide.
const (
	bins       = 160
	laneHeight = 32
	barHeight  = 24
)

// Each role has its own lane.
type timeline struct {
	Took  time.Duration
	Bin   time.Duration // length of a time step
	Lanes []lane
	Times []string // labels of the time axis
}

type lane struct {
	Name                       string
	Requests, Faulty, Breaking int
	Most                       int
	Bars, Faults               string // SVG paths
	Marks                      []mark
}

type mark struct {
	X, Y float64 // position of the top of the bar
	Text string
}

type point struct {
	at     time.Time
	role   verdict.Role
	faulty bool
	breaks []string
}

func pointOf(e *verdict.Entry) point {
	return point{time.Time(e.At), e.Role, e.Fault != "", e.Breaks}
}

var laneNames = []struct {
	role verdict.Role
	name string
}{
	{verdict.Submit, "Submissions"}, {verdict.SubmitMany, "Batches"}, {verdict.Read, "Reads"}, {verdict.ReadMany, "Reads of batches"},
	{verdict.List, "Lists"}, {verdict.Outcome, "Outcomes"}, {verdict.Stream, "Streams"}, {verdict.Retry, "Retries"},
	{verdict.Delivery, "Deliveries"}, {"", "Others"},
}

type bin struct {
	requests, faulty, breaking int
	breaks                     map[string]int // number of requests that broke each rule
}

// timelineOf returns the timeline of the points, which must be sorted by time.
func timelineOf(points []point) (t timeline) {
	if len(points) == 0 {
		return t
	}
	began := points[0].at
	t.Took = points[len(points)-1].at.Sub(began)
	t.Bin = max(t.Took/bins, time.Millisecond)
	all := map[verdict.Role]*[bins]bin{}
	for _, p := range points {
		if all[p.role] == nil {
			all[p.role] = &[bins]bin{}
		}
		b := &all[p.role][min(int(p.at.Sub(began)/t.Bin), bins-1)]
		b.requests++
		if p.faulty {
			b.faulty++
		}
		if len(p.breaks) > 0 && b.breaks == nil {
			b.breaks = map[string]int{}
		}
		for _, rule := range p.breaks {
			b.breaks[rule]++
		}
		if len(p.breaks) > 0 {
			b.breaking++
		}
	}
	for _, l := range laneNames {
		if parts := all[l.role]; parts != nil {
			t.Lanes = append(t.Lanes, draw(l.name, parts, began, t.Bin))
		}
	}
	layout := "15:04:05"
	if t.Took < 10*time.Second {
		layout += ".000"
	}
	for i := range time.Duration(5) {
		t.Times = append(t.Times, began.Add(i*bins*t.Bin/4).UTC().Format(layout))
	}
	return t
}

func draw(name string, parts *[bins]bin, began time.Time, width time.Duration) lane {
	l := lane{Name: name}
	for _, b := range parts {
		l.Requests, l.Faulty, l.Most = l.Requests+b.requests, l.Faulty+b.faulty, max(l.Most, b.requests)
	}
	var bars, faults strings.Builder
	for i, b := range parts {
		if b.requests == 0 {
			continue
		}
		high := max(3, barHeight*float64(b.requests)/float64(l.Most))
		bar(&bars, i, high)
		if b.faulty > 0 {
			bar(&faults, i, max(3, high*float64(b.faulty)/float64(b.requests)))
		}
		if len(b.breaks) > 0 {
			text := began.Add(time.Duration(i)*width).UTC().Format("15:04:05.0") + ":"
			for _, rule := range slices.Sorted(maps.Keys(b.breaks)) {
				text += fmt.Sprintf(" %s%s", rule, times(b.breaks[rule]))
			}
			l.Breaking += b.breaking
			l.Marks = append(l.Marks, mark{float64(i) + .5, laneHeight - high, text})
		}
	}
	l.Bars, l.Faults = bars.String(), faults.String()
	return l
}

func bar(path *strings.Builder, at int, high float64) {
	fmt.Fprintf(path, "M%d.1 %dv-%sh.8V%dz", at, laneHeight, strconv.FormatFloat(high, 'f', 1, 64), laneHeight)
}
