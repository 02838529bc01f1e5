package report

import (
	"math"
	"strconv"
	"time"
)

// tick is a labelled place on an axis, in per cent of its length.
type tick struct {
	At    float64
	Label string
}

// axis maps values to shares of its length, 0 to 1.
type axis struct {
	Ticks []tick
	place func(float64) float64
}

// at keeps what lies beyond the ends on them.
func (a axis) at(v float64) float64 { return min(max(a.place(v), 0), 1) }

func (a *axis) mark(v float64, label string) {
	if p := a.place(v); p >= -1e-9 && p <= 1+1e-9 {
		a.Ticks = append(a.Ticks, tick{percent(p), label})
	}
}

// percent is short enough for a page with thousands of them.
func percent(share float64) float64 { return math.Round(share*1e4)/100 + 0 /* not -0 */ }

// linearAxis goes from 0 to a round number that is not below top.
func linearAxis(top float64, wholeOnly bool) axis {
	const wanted = 4
	step := niceStep(max(top, 1e-9) / wanted)
	if top <= 0 || wholeOnly && step < 1 {
		step = 1
	}
	n := max(math.Ceil(top/step-1e-9), 1)
	a := axis{place: func(v float64) float64 { return v / (n * step) }}
	for i := range int(n) + 1 {
		a.mark(float64(i)*step, short(float64(i)*step))
	}
	return a
}

// niceStep is the next of 1, 2, 5, 10, ... that is not below least.
func niceStep(least float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(least)))
	for _, m := range []float64{1, 2, 5} {
		if m*unit >= least*(1-1e-9) {
			return m * unit
		}
	}
	return 10 * unit
}

// short writes 12000 as 12k.
func short(v float64) string {
	unit := ""
	switch {
	case v >= 1e9:
		v, unit = v/1e9, "G"
	case v >= 1e6:
		v, unit = v/1e6, "M"
	case v >= 1e4:
		v, unit = v/1e3, "k"
	}
	return strconv.FormatFloat(math.Round(v*1000)/1000, 'f', -1, 64) + unit
}

// logAxis spans lengths of time, in seconds, in whole decades; or finer ones, when there is but one.
func logAxis(least, most time.Duration) axis {
	lo := math.Floor(math.Log10(max(least, shortest).Seconds()) + 1e-9)
	hi := math.Ceil(math.Log10(max(most, least, shortest).Seconds()) - 1e-9)
	if hi <= lo {
		hi = lo + 1
	}
	a := axis{place: func(seconds float64) float64 { return (math.Log10(max(seconds, 1e-12)) - lo) / (hi - lo) }}
	between := []float64{1}
	if hi-lo <= 2 {
		between = []float64{1, 2, 5}
	}
	for decade := lo; decade <= hi; decade++ {
		for _, m := range between {
			seconds := m * math.Pow(10, decade)
			a.mark(seconds, tickTime(time.Duration(math.Round(seconds*1e9))))
		}
	}
	return a
}

// tickTime writes a round length of time.
func tickTime(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return short(d.Hours()) + " h"
	case d >= time.Second:
		return short(d.Seconds()) + " s"
	case d >= time.Millisecond:
		return short(float64(d)/float64(time.Millisecond)) + " ms"
	}
	return short(float64(d)/float64(time.Microsecond)) + " µs"
}

// timeAxis goes over a run, with some six ticks at whole seconds, minutes, hours.
func timeAxis(took time.Duration) axis {
	steps := []time.Duration{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400}
	step := 100 * time.Millisecond
	for i := 0; took/step > 7 && i < len(steps); i++ {
		step = steps[i] * time.Second
	}
	for took/step > 7 {
		step *= 2
	}
	unit, name := time.Second, "s"
	switch {
	case step >= time.Hour:
		unit, name = time.Hour, "h"
	case step >= time.Minute:
		unit, name = time.Minute, "min"
	}
	end := max(took, 1).Seconds()
	a := axis{place: func(seconds float64) float64 { return seconds / end }}
	for t := time.Duration(0); t <= took; t += step {
		a.mark(t.Seconds(), short(float64(t)/float64(unit))+" "+name)
	}
	return a
}

// tailAxis is for shares of count samples, spread so that 90 %, 99 % and 99.9 % are equally far apart.
func tailAxis(count int64) axis {
	nines := max(math.Log10(float64(max(count, 1))), 1)
	a := axis{place: func(q float64) float64 { return -math.Log10(max(1-q, 1e-12)) / nines }}
	a.mark(0, "0")
	a.mark(0.5, "50 %")
	for i, label := range []string{"90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"} {
		a.mark(1-math.Pow(10, -float64(i+1)), label)
	}
	return a
}
