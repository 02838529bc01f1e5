package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// countedRows has one statement for each table that metrics must agree with. Its
// columns are the numbers of rows that the metrics must equal, in their order.
var countedRows = []struct {
	counters bool // and not gauges
	metrics  []string
	sql      string
}{
	{true, []string{
		"jobs_submitted_total", "jobs_queued_total", "jobs_running_total", "jobs_succeeded_total", "jobs_failed_total", "jobs_canceled_total",
		"job_queue_wait_seconds", "job_retries_total",
	}, `SELECT count(*) FILTER (WHERE event_name = 'job.created'), count(*) FILTER (WHERE next_state = 'QUEUED'),
		count(*) FILTER (WHERE next_state = 'RUNNING'), count(*) FILTER (WHERE next_state = 'SUCCEEDED'),
		count(*) FILTER (WHERE next_state = 'FAILED'), count(*) FILTER (WHERE next_state = 'CANCELED'),
		count(*) FILTER (WHERE next_state = 'ASSIGNED'), count(*) FILTER (WHERE prev_state = 'FAILED' AND next_state = 'QUEUED') FROM events`},
	{true, []string{"job_execution_seconds", "job_retry_outcomes_total"},
		`SELECT count(*) FILTER (WHERE started_at IS NOT NULL), count(*) FILTER (WHERE attempt > 1) FROM reports`},
	{true, []string{"webhook_deliveries_total"}, `SELECT count(*) FROM delivery_attempts`},
	{false, []string{
		`jobs_current{state="CREATED"}`, `jobs_current{state="QUEUED"}`, "job_queue_depth",
		`jobs_current{state="ASSIGNED"}`, `jobs_current{state="RUNNING"}`,
	}, `SELECT count(*) FILTER (WHERE state = 'CREATED'), count(*) FILTER (WHERE state = 'QUEUED'), count(*) FILTER (WHERE state = 'QUEUED'),
		count(*) FILTER (WHERE state = 'ASSIGNED'), count(*) FILTER (WHERE state = 'RUNNING') FROM jobs WHERE finished_at IS NULL`},
	{false, []string{"webhook_deliveries_pending"}, `SELECT count(*) FROM deliveries WHERE state = 'PENDING'`},
}

// statisticsTime is the gauge that is set once a process has counted the backlog:
// before, the gauges of the backlog mean nothing.
const statisticsTime = "census_timestamp_seconds"

// metrics reads the metrics until they agree with the rows, or for as long as
// MaxWait: what is committed is counted a moment later, and the backlog every few
// seconds. Rows that change meanwhile cannot be compared.
func (c *collector) metrics(ctx context.Context) error {
	return connected(ctx, c.DatabaseURL, func(conn *pgx.Conn) error {
		measures, err := c.countRows(ctx, conn)
		if err != nil {
			return err
		}
		counted := false
		err = c.poll(ctx, time.Second, func() (bool, error) {
			totals, err := c.scrapeAll(ctx)
			counted = totals[statisticsTime] > 0
			agree := counted
			for i := range measures {
				m := &measures[i]
				m.Metric = totals[m.Name]
				agree = agree && m.Metric == m.Rows
			}
			return agree, err
		})
		if err != nil {
			return err
		}
		if !counted {
			return errors.New("no process has counted the backlog")
		}
		after, err := c.countRows(ctx, conn)
		if err != nil {
			return err
		}
		for i, m := range measures {
			if after[i].Rows != m.Rows {
				return fmt.Errorf("the rows behind %s changed meanwhile", m.Name)
			}
		}
		c.found.Measured = measures
		return nil
	})
}

// countRows counts the rows behind gauges and, if they are comparable, counters.
func (c *collector) countRows(ctx context.Context, conn *pgx.Conn) (all []judge.Measure, err error) {
	for _, of := range countedRows {
		if of.counters && !c.Counters {
			continue
		}
		rows, _ := conn.Query(ctx, of.sql) // the next line returns its error
		numbers, err := pgx.CollectExactlyOneRow(rows, pgx.CollectableRow.Values)
		if err != nil {
			return nil, err
		}
		for i, name := range of.metrics {
			all = append(all, judge.Measure{Name: name, Rows: float64(numbers[i].(int64)), Counter: of.counters})
		}
	}
	return all, nil
}

const (
	scrapeTimeout = 10 * time.Second
	scrapeBytes   = 16 << 20
)

// scrapeAll adds up the metrics of all processes, by name and by name{label="value"}.
func (c *collector) scrapeAll(ctx context.Context) (map[string]float64, error) {
	totals := map[string]float64{}
	for _, url := range c.MetricsURLs {
		if err := scrape(ctx, url, totals); err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", judge.RedactURL(url), err)
		}
	}
	return totals, nil
}

// scrape adds a process's metrics to the totals: the values of counters and
// gauges, and the number of observations of histograms.
func scrape(ctx context.Context, url string, totals map[string]float64) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return errors.New("the address cannot be read")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %d", response.StatusCode)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, scrapeBytes))
	for name, family := range families {
		for _, m := range family.GetMetric() {
			n := m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue() + float64(m.GetHistogram().GetSampleCount())
			totals[name] += n
			for _, l := range m.GetLabel() {
				totals[fmt.Sprintf("%s{%s=%q}", name, l.GetName(), l.GetValue())] += n
			}
		}
	}
	return err
}
