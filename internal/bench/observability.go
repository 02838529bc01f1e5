package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// keptTarget is the part of the throughput that must be left when everything is
// counted, logged and scraped.
const keptTarget = 0.95

// observedRounds is how many rounds there are for each one of other comparisons:
// the difference to be seen is small.
const observedRounds = 2

// scrapeInterval is that of the Prometheus configuration in monitoring.
const scrapeInterval = 5 * time.Second

// mode is a way to run the service.
type mode struct {
	name    string
	program string // "": the service as it is
	env     []string
}

// observability measures what metrics and logs cost: the same load without any,
// with logs alone, and with all of them and a scraper. Tracing is off, as it is by
// default; on request a fourth mode traces each request. The modes take turns, in
// an order that turns round each time.
func observability(ctx context.Context, l *lab) ([]figure, error) {
	traces, err := newCollector()
	if err != nil {
		return nil, err
	}
	defer traces.close()
	uncounted, err := buildUncounted(ctx, l.dir)
	if err != nil {
		return nil, err
	}
	modes := []mode{
		{"unseen", uncounted, []string{"FORGERUN_LOG_LEVEL=error"}}, {"logged", uncounted, nil}, {"seen", "", nil},
	}
	if l.o.traced {
		modes = append(modes, mode{"traced", "", []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + traces.url}})
	}
	samples := make([][]sample, len(modes))
	rounds := observedRounds * l.o.rounds
	for round := range rounds {
		for turn := range modes {
			i := turn
			if round%2 == 1 {
				i = len(modes) - 1 - turn
			}
			o := l.o
			o.env, o.program = modes[i].env, modes[i].program
			start, scrapes := starter(l.startForgeRun), &scraper{}
			if i > 1 {
				start = l.scraped(scrapes)
			}
			measured, err := l.measure(ctx, o, start)
			if err = errors.Join(err, scrapes.failure()); err != nil {
				return nil, fmt.Errorf("%s: %w", modes[i].name, err)
			}
			l.say("round %d of %d: %s: %s", round+1, rounds, modes[i].name, measured)
			samples[i] = append(samples[i], measured)
		}
	}
	if l.o.traced && traces.received.Load() == 0 {
		return nil, errors.New("no spans reached the collector")
	}
	return reportObservability(modes, samples)
}

// scraped starts the service as it is, and reads the metrics of each process.
func (s *stack) scraped(by *scraper) func(context.Context, *database, options) (system, error) {
	return func(ctx context.Context, d *database, o options) (system, error) {
		sys, err := s.startForgeRun(ctx, d, o)
		if err != nil {
			return sys, err
		}
		startWorker := sys.startWorker
		sys.startWorker = func() (*program, error) {
			w, err := startWorker()
			if err != nil {
				return w, err
			}
			return w, by.follow(w)
		}
		return sys, by.follow(sys.api)
	}
}

// scraper reads metrics as Prometheus does: as often, and in the same form.
type scraper struct {
	mu     sync.Mutex
	failed error
}

// adminListening is what a program logs of its admin listener.
const adminListening = `"admin listening".*"address":"([^"]+)"`

// follow reads a program's metrics once, and then in the background until the
// program is stopped.
func (s *scraper) follow(p *program) error {
	address, err := p.await(adminListening)
	if err != nil {
		return err
	}
	url := "http://" + address + "/metrics"
	if err := scrape(url); err != nil {
		return err
	}
	go func() {
		ticker := time.NewTicker(scrapeInterval)
		defer ticker.Stop()
		for {
			select {
			case <-p.stopping:
				return
			case <-ticker.C:
			}
			err := scrape(url)
			select {
			case <-p.stopping: // which explains any error
				return
			default:
				s.note(err)
			}
		}
	}()
	return nil
}

func (s *scraper) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// failure says which scrapes failed: what was measured is then not what it costs
// to be scraped.
func (s *scraper) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Prometheus 3 asks for metrics with these headers.
const (
	scrapeAccept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5," +
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
	scrapeEncoding = "gzip"
)

// scraping has the time limit of the Prometheus configuration in monitoring.
var scraping = http.Client{Timeout: 4 * time.Second}

func scrape(url string) error {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", scrapeAccept)
	request.Header.Set("Accept-Encoding", scrapeEncoding)
	response, err := scraping.Do(request)
	if err != nil {
		return fmt.Errorf("scraping: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("scraping: %w", err)
	}
	form := response.Header.Get("Content-Type")
	if response.StatusCode != http.StatusOK || !strings.HasPrefix(form, "application/openmetrics-text") {
		return fmt.Errorf("scraping: %s, %s", response.Status, form)
	}
	return nil
}

// reportObservability compares round by round, since a machine's speed drifts.
func reportObservability(modes []mode, samples [][]sample) (figures []figure, err error) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nagainst what nobody sees\taccepted/s\tfinished/s\tCPU per job")
	for i := 1; i < len(modes); i++ {
		against := func(of func(sample) float64) float64 {
			return median(ratios(column(samples[i], of), column(samples[0], of)))
		}
		accepted, finished := against(acceptedRate), against(finishedRate)
		_, _ = fmt.Fprintf(table, "%s\t%.3fx\t%.3fx\t%.3fx\n", modes[i].name, accepted, finished, against(cpuPerJob))
		if modes[i].name == "seen" {
			figures = []figure{
				atLeast("accepted/s with metrics, logs and scrapes", keptTarget, accepted, "x unseen", ""),
				atLeast("finished/s with metrics, logs and scrapes", keptTarget, finished, "x unseen", ""),
			}
		}
	}
	return figures, table.Flush()
}
