package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// keptTarget is the part of the throughput that must be left when everything is
// counted, logged and scraped.
const keptTarget = 0.95

// scrapeInterval is that of the Prometheus configuration in monitoring.
const scrapeInterval = 5 * time.Second

// modes of a run. Tracing is off in the first two, as it is by default.
var modes = []struct {
	name string
	env  []string
}{
	{"unseen", []string{"FORGERUN_METRICS=false", "FORGERUN_LOG_LEVEL=error"}},
	{"seen", nil},
	{"traced", nil},
}

// runObservability measures what metrics, logs and traces cost: the same load
// without any, with metrics and logs and a scraper, and with each request traced
// as well. The modes take turns, in an order that turns round each time.
func runObservability(ctx context.Context, args []string) (ok bool, err error) {
	o := options{clients: 64, slots: 128}
	flags := flag.NewFlagSet("observability", flag.ContinueOnError)
	flags.IntVar(&o.rounds, "rounds", 5, "how often everything is measured; medians of the rounds' ratios are shown")
	flags.DurationVar(&o.duration, "duration", 6*time.Second, "length of each phase")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	s, err := newStack(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	traces, err := newCollector()
	if err != nil {
		return false, err
	}
	defer traces.close()
	samples := make([][]sample, len(modes))
	for round := range o.rounds {
		order := []int{0, 1, 2}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, i := range order {
			o.env = modes[i].env
			if modes[i].name == "traced" {
				o.env = []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + traces.url}
			}
			fmt.Printf("round %d of %d: %s\n", round+1, o.rounds, modes[i].name)
			measured, err := s.measure(ctx, o, s.scraped(modes[i].name != "unseen"))
			if err != nil {
				return false, fmt.Errorf("%s: %w", modes[i].name, err)
			}
			fmt.Printf("  %s\n", measured)
			samples[i] = append(samples[i], measured)
		}
	}
	fmt.Printf("%d requests with spans reached the collector\n", traces.received.Load())
	return reportObservability(samples)
}

// scraped starts the service as it is, and reads the metrics of both processes
// as often as Prometheus would.
func (s *stack) scraped(on bool) func(context.Context, *database, options) (system, error) {
	if !on {
		return s.startForgeRun
	}
	return func(ctx context.Context, d *database, o options) (system, error) {
		sys, err := s.startForgeRun(ctx, d, o)
		if err != nil {
			return sys, err
		}
		go scrape(sys.api)
		startWorker := sys.startWorker
		sys.startWorker = func() (*program, error) {
			w, err := startWorker()
			if err == nil {
				go scrape(w)
			}
			return w, err
		}
		return sys, nil
	}
}

// scrape reads a program's metrics for as long as it answers.
func scrape(p *program) {
	address, err := p.await(`"admin listening".*"address":"([^"]+)"`)
	if err != nil {
		return
	}
	for {
		response, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		time.Sleep(scrapeInterval)
	}
}

// reportObservability compares round by round, since a machine's speed drifts.
func reportObservability(samples [][]sample) (ok bool, err error) {
	against := func(mode int, of func(sample) float64) float64 {
		var ratios []float64
		for round := range samples[mode] {
			ratios = append(ratios, of(samples[mode][round])/of(samples[0][round]))
		}
		slices.Sort(ratios)
		return ratios[len(ratios)/2]
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nagainst nothing seen\taccepted/s\tfinished/s\tCPU per job")
	ok = true
	for mode := 1; mode < len(modes); mode++ {
		accepted := against(mode, func(m sample) float64 { return m.accepted })
		finished := against(mode, func(m sample) float64 { return m.finished })
		cpu := against(mode, func(m sample) float64 { return m.cpu })
		_, _ = fmt.Fprintf(table, "%s\t%.3fx\t%.3fx\t%.3fx\n", modes[mode].name, accepted, finished, cpu)
		if modes[mode].name == "seen" {
			ok = accepted >= keptTarget && finished >= keptTarget
		}
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	fmt.Printf("\nmetrics and logs on: target >= %.2fx of both rates: %s\n", keptTarget, verdict(ok))
	return ok, nil
}
