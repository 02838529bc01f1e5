package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// metric is a metric that must equal a number of rows, and the label that selects
// its series, if any.
type metric struct {
	name, label, value string
	counter            bool
}

// countedRows are read in a pass over each table. Each statement gives the rows of
// the metrics before it, in their order.
var countedRows = []struct {
	metrics []metric
	sql     string
}{
	{[]metric{
		{"jobs_submitted_total", "", "", true}, {"jobs_queued_total", "", "", true}, {"jobs_running_total", "", "", true},
		{"jobs_succeeded_total", "", "", true}, {"jobs_failed_total", "", "", true}, {"jobs_canceled_total", "", "", true},
		{"job_queue_wait_seconds", "", "", true}, {"job_retries_total", "", "", true},
	}, `SELECT count(*) FILTER (WHERE event_name = 'job.created'), count(*) FILTER (WHERE next_state = 'QUEUED'), count(*) FILTER (WHERE next_state = 'RUNNING'),
		count(*) FILTER (WHERE next_state = 'SUCCEEDED'), count(*) FILTER (WHERE next_state = 'FAILED'), count(*) FILTER (WHERE next_state = 'CANCELED'),
		count(*) FILTER (WHERE next_state = 'ASSIGNED'), count(*) FILTER (WHERE prev_state = 'FAILED' AND next_state = 'QUEUED') FROM events`},
	{[]metric{{"job_execution_seconds", "", "", true}, {"job_retry_outcomes_total", "", "", true}},
		`SELECT count(*) FILTER (WHERE started_at IS NOT NULL), count(*) FILTER (WHERE attempt > 1) FROM reports`},
	{[]metric{{"webhook_deliveries_total", "", "", true}}, `SELECT count(*) FROM delivery_attempts`},
	{[]metric{
		{"jobs_current", "state", created, false}, {"jobs_current", "state", queued, false}, {"job_queue_depth", "", "", false},
		{"jobs_current", "state", assigned, false}, {"jobs_current", "state", running, false},
	}, `SELECT count(*) FILTER (WHERE state = 'CREATED'), count(*) FILTER (WHERE state = 'QUEUED'), count(*) FILTER (WHERE state = 'QUEUED'),
		count(*) FILTER (WHERE state = 'ASSIGNED'), count(*) FILTER (WHERE state = 'RUNNING') FROM jobs WHERE finished_at IS NULL`},
	{[]metric{{"webhook_deliveries_pending", "", "", false}}, `SELECT count(*) FROM deliveries WHERE state = 'PENDING'`},
}

// metrics compares until metrics and rows agree, or for as long as it is patient:
// what is committed is counted a moment later, and the census is taken every few
// seconds. Rows that change meanwhile cannot be compared.
func (c *collector) metrics(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, c.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	before, err := countRows(ctx, conn, c.Counters)
	if err != nil {
		return err
	}
	for until := time.Now().Add(c.Patience); ; {
		families, err := c.scrapeAll(ctx)
		if err != nil {
			return err
		}
		census := sumOf(families, metric{name: "census_timestamp_seconds"}) > 0
		agree := census
		for i := range before {
			m := &before[i]
			m.Metric = sumOf(families, m.metric)
			agree = agree && m.Metric == m.Rows
		}
		late := time.Now().After(until)
		if late && !census {
			return errors.New("no process has taken a census")
		}
		if agree || late {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
	after, err := countRows(ctx, conn, c.Counters)
	if err != nil {
		return err
	}
	for i, m := range before {
		if after[i].Rows != m.Rows {
			return fmt.Errorf("the rows behind %s changed meanwhile", m.Name)
		}
		c.found.Measured = append(c.found.Measured, m.Measure)
	}
	return nil
}

type counted struct {
	metric
	Measure
}

// countRows counts the rows behind gauges and, if they are to be compared,
// counters.
func countRows(ctx context.Context, conn *pgx.Conn, counters bool) (all []counted, err error) {
	for _, of := range countedRows {
		numbers := make([]int64, len(of.metrics))
		into := make([]any, len(numbers))
		for i := range numbers {
			into[i] = &numbers[i]
		}
		if err := conn.QueryRow(ctx, of.sql).Scan(into...); err != nil {
			return nil, err
		}
		for i, m := range of.metrics {
			name := m.name
			if m.label != "" {
				name = fmt.Sprintf("%s{%s=%q}", m.name, m.label, m.value)
			}
			if m.counter && !counters {
				continue
			}
			all = append(all, counted{m, Measure{Name: name, Rows: float64(numbers[i]), Counter: m.counter}})
		}
	}
	return all, nil
}

const (
	scrapePatience = 10 * time.Second
	scrapeBytes    = 16 << 20
)

// scrapeAll reads the metrics of all processes.
func (c *collector) scrapeAll(ctx context.Context) ([]map[string]*dto.MetricFamily, error) {
	var all []map[string]*dto.MetricFamily
	for _, url := range c.MetricsURLs {
		families, err := scrape(ctx, url)
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", address(url), err)
		}
		all = append(all, families)
	}
	return all, nil
}

func scrape(ctx context.Context, url string) (map[string]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapePatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, errors.New("the address cannot be read")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answered %d", response.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(io.LimitReader(response.Body, scrapeBytes))
}

// sumOf adds up the series of a metric over all processes: values of counters and
// gauges, and how often histograms were added to.
func sumOf(processes []map[string]*dto.MetricFamily, of metric) (total float64) {
	for _, families := range processes {
		for _, m := range families[of.name].GetMetric() {
			matches := of.label == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetName() == of.label && l.GetValue() == of.value
			}
			if matches {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}
