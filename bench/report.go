package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// figure is one row of the result.
type figure struct {
	Figure   string  `json:"figure"`
	Target   float64 `json:"target"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	OK       bool    `json:"ok"`
}

// Targets, as ratios to the naive path.
const (
	submitTarget = 3.0
	pathTarget   = 2.0
)

func report(o options, real, naive sample) (ok bool, err error) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	row := func(name string, a, b any, ratio float64) {
		_, _ = fmt.Fprintf(table, "%s\t%v\t%v\t%.2fx\n", name, a, b, ratio)
	}
	duration := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	_, _ = fmt.Fprintf(table, "\n%d clients, PAYLOAD_SMALL, no duration, medians of %d rounds\tforgerun\tnaive\tratio\n", o.clients, o.rounds)
	row("accepted/s, worker stopped", int(real.accepted), int(naive.accepted), real.accepted/naive.accepted)
	row("submit p50", duration(real.submit50), duration(naive.submit50), ratio(real.submit50, naive.submit50))
	row("submit p99", duration(real.submit99), duration(naive.submit99), ratio(real.submit99, naive.submit99))
	row("finished/s, submit to report", int(real.finished), int(naive.finished), real.finished/naive.finished)
	row("submit to finished p50", duration(real.path50), duration(naive.path50), ratio(real.path50, naive.path50))
	row("submit to finished p99", duration(real.path99), duration(naive.path99), ratio(real.path99, naive.path99))
	row("CPU s per 1,000 jobs, all processes", fmt.Sprintf("%.3f", real.cpu), fmt.Sprintf("%.3f", naive.cpu), real.cpu/naive.cpu)
	row("CPU s per 1,000 jobs, load generator", fmt.Sprintf("%.3f", real.cpuGenerator), fmt.Sprintf("%.3f", naive.cpuGenerator), real.cpuGenerator/naive.cpuGenerator)
	if err := table.Flush(); err != nil {
		return false, err
	}

	figures := []figure{
		{Figure: "accepted/s against naive", Target: submitTarget, Measured: real.accepted / naive.accepted, Unit: "x"},
		{Figure: "finished/s against naive", Target: pathTarget, Measured: real.finished / naive.finished, Unit: "x"},
	}
	ok = true
	fmt.Println()
	for i, f := range figures {
		figures[i].OK = f.Measured >= f.Target
		ok = ok && figures[i].OK
		fmt.Printf("%-28s target >= %.1f%s, measured %.2f%s: %s\n", f.Figure, f.Target, f.Unit, f.Measured, f.Unit, verdict(figures[i].OK))
	}
	if o.json == "" {
		return ok, nil
	}
	content, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return ok, err
	}
	return ok, os.WriteFile(o.json, append(content, '\n'), 0o600)
}

func verdict(ok bool) string {
	if ok {
		return "ok"
	}
	return "FALLS SHORT"
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// median takes the median of each figure.
func median(samples []sample) sample {
	number := func(of func(sample) float64) float64 {
		values := make([]float64, len(samples))
		for i, s := range samples {
			values[i] = of(s)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	duration := func(of func(sample) time.Duration) time.Duration {
		return time.Duration(number(func(s sample) float64 { return float64(of(s)) }))
	}
	return sample{
		accepted: number(func(s sample) float64 { return s.accepted }), finished: number(func(s sample) float64 { return s.finished }),
		submit50: duration(func(s sample) time.Duration { return s.submit50 }), submit99: duration(func(s sample) time.Duration { return s.submit99 }),
		path50: duration(func(s sample) time.Duration { return s.path50 }), path99: duration(func(s sample) time.Duration { return s.path99 }),
		cpu: number(func(s sample) float64 { return s.cpu }), cpuGenerator: number(func(s sample) float64 { return s.cpuGenerator }),
	}
}
