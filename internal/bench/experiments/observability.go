package experiments

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

const (
	observedTarget = 0.97 // of the throughput without metrics and logs
	observedRounds = 2    // for each round of other comparisons: the difference is small
)

// mode is a way to run the service.
type mode struct {
	name    string
	program string // "": the service as it is
	env     []string
	scraped bool
	samples []sample
}

// Observability measures what metrics and logs cost: the same load without any (a build
// whose metrics do nothing), with logs alone, and with all of them and a scraper. On
// request a fourth mode traces each request.
func Observability(ctx context.Context, l *lab.Lab) ([]figures.Figure, error) {
	uncounted, err := lab.BuildUncounted(ctx, l.Dir)
	if err != nil {
		return nil, err
	}
	exports := &counter{answer: func(r *fasthttp.RequestCtx) { r.SetContentType("application/x-protobuf") }}
	traces, err := listen(&fasthttp.Server{MaxRequestBodySize: 64 << 20, Handler: exports.handle})
	if err != nil {
		return nil, err
	}
	defer traces.Close()
	modes := []*mode{
		{name: "unseen", program: uncounted, env: []string{"FORGERUN_LOG_LEVEL=error"}},
		{name: "logged", program: uncounted}, {name: "seen", scraped: true},
	}
	if l.Options.Traced {
		modes = append(modes, &mode{name: "traced", scraped: true, env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + traces.Addr().String()}})
	}
	rounds := observedRounds * l.Options.Rounds
	err = lab.InTurns(rounds, len(modes), func(round, side int) error {
		m := modes[side]
		if err := m.measure(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		l.Printf("round %d of %d: %s: %s", round+1, rounds, m.name, m.samples[len(m.samples)-1])
		return nil
	})
	if err == nil && l.Options.Traced && exports.Load() == 0 {
		err = errors.New("no spans reached the collector")
	}
	if err != nil {
		return nil, err
	}
	return observabilityFigures(modes)
}

func (m *mode) measure(ctx context.Context, l *lab.Lab) error {
	o := l.Options
	o.Env, o.Program = m.env, m.program
	start, scrapes := lab.Starter(l.StartService), &scraper{}
	if m.scraped {
		start = scrapes.start(start)
	}
	measured, err := measure(ctx, l, o, start)
	m.samples = append(m.samples, measured)
	return errors.Join(err, scrapes.group.Wait()) // otherwise it would not be what scrapes cost
}

// observabilityFigures compares round by round, since a machine's speed drifts.
func observabilityFigures(modes []*mode) (list []figures.Figure, err error) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nagainst what nobody sees\taccepted/s\tfinished/s\tCPU per job")
	for _, m := range modes[1:] {
		against := func(of func(sample) float64) float64 {
			ratio, _ := figures.Compare(m.samples, modes[0].samples, of, "%v")
			return ratio
		}
		accepted, finished := against(acceptedRate), against(finishedRate)
		_, _ = fmt.Fprintf(table, "%s\t%.3fx\t%.3fx\t%.3fx\n", m.name, accepted, finished, against(cpuPerJob))
		if m.name == "seen" {
			list = []figures.Figure{
				figures.AtLeast("accepted/s with metrics, logs and scrapes", observedTarget, accepted, "x unseen", ""),
				figures.AtLeast("finished/s with metrics, logs and scrapes", observedTarget, finished, "x unseen", ""),
			}
		}
	}
	return list, table.Flush()
}

// scraper reads metrics as the Prometheus of the configuration in monitoring does:
// as often, in the same form and with the same time limit.
type scraper struct{ group errgroup.Group }

const scrapeInterval = 5 * time.Second

// adminListening matches what a program logs of its admin listener.
const adminListening = `"admin listening".*"address":"([^"]+)"`

// start starts a system and reads the metrics of each of its processes.
func (s *scraper) start(start lab.Starter) lab.Starter {
	return func(ctx context.Context, d *lab.Database, o lab.Options) (lab.System, error) {
		sys, err := start(ctx, d, o)
		if err != nil {
			return sys, err
		}
		startWorker := sys.StartWorker
		sys.StartWorker = func() (*lab.Program, error) {
			w, err := startWorker()
			if err != nil {
				return w, err
			}
			return w, s.follow(ctx, w)
		}
		return sys, s.follow(ctx, sys.API)
	}
}

// follow reads a program's metrics now, and then in the background until the program
// is stopped.
func (s *scraper) follow(ctx context.Context, p *lab.Program) error {
	address, err := p.Logged(ctx, adminListening)
	if err != nil {
		return err
	}
	url := "http://" + address + "/metrics"
	s.group.Go(func() error {
		for err := scrape(ctx, url); ; err = scrape(ctx, url) {
			if err != nil && !p.IsStopping() {
				return err
			}
			select {
			case <-p.Stopping():
				return nil
			case <-time.After(scrapeInterval):
			}
		}
	})
	return nil
}

// scrapeHeader is what Prometheus 3 sends.
var scrapeHeader = http.Header{
	"Accept": {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5," +
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"},
	"Accept-Encoding": {"gzip"},
}

func scrape(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Second)
	defer cancel()
	_, header, err := get(ctx, url, scrapeHeader)
	if err != nil {
		return fmt.Errorf("scraping: %w", err)
	}
	if form := header.Get("Content-Type"); !strings.HasPrefix(form, "application/openmetrics-text") {
		return fmt.Errorf("scraping: %s", form)
	}
	return nil
}

// get reads an address. Anything but 200 is an error.
func get(ctx context.Context, url string, header http.Header) ([]byte, http.Header, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(request.Header, header)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, content)
	}
	return content, response.Header, err
}

// listen serves on a free port until the listener is closed.
func listen(server *fasthttp.Server) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() { _ = server.Serve(l) }()
	return l, nil
}

// counter counts requests that it has answered.
type counter struct {
	atomic.Int64
	answer fasthttp.RequestHandler
}

func (c *counter) handle(r *fasthttp.RequestCtx) {
	c.answer(r)
	c.Add(1)
}
