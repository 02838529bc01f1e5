package experiments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
)

const (
	// observedTarget is the part of the throughput that must be left when everything is
	// counted, logged and scraped.
	observedTarget = 0.95
	// observedRounds is how many rounds there are for each one of other comparisons:
	// the difference to be seen is small.
	observedRounds = 2
)

// mode is a way to run the service.
type mode struct {
	name    string
	program string // "": the service as it is
	env     []string
	scraped bool
	samples []sample
}

// Observability measures what metrics and logs cost: the same load without any, with
// logs alone, and with all of them and a scraper. Without metrics it is a build of
// the service whose metrics do nothing. Tracing is off, as it is by default; on
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
		{name: "logged", program: uncounted},
		{name: "seen", scraped: true},
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
	return errors.Join(err, scrapes.failure())
}

// observabilityFigures compares round by round, since a machine's speed drifts.
func observabilityFigures(modes []*mode) (list []figures.Figure, err error) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "\nagainst what nobody sees\taccepted/s\tfinished/s\tCPU per job")
	for _, m := range modes[1:] {
		against := func(of func(sample) float64) float64 {
			ratio, _ := figures.Compare(figures.Column(m.samples, of), figures.Column(modes[0].samples, of), "%v")
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
