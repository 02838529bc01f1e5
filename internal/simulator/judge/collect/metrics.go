package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// countedRows are read in one pass over each table.
var countedRows = []struct {
	counters bool // and not gauges
	from     string
	metrics  [][2]string // metrics, and the condition of the rows that each must count
}{
	{true, "events", [][2]string{
		{"jobs_submitted_total", "event_name = 'job.created'"}, {"jobs_queued_total", "next_state = 'QUEUED'"},
		{"jobs_running_total", "next_state = 'RUNNING'"}, {"jobs_succeeded_total", "next_state = 'SUCCEEDED'"},
		{"jobs_failed_total", "next_state = 'FAILED'"}, {"jobs_canceled_total", "next_state = 'CANCELED'"},
		{"job_queue_wait_seconds", "next_state = 'ASSIGNED'"}, {"job_queued_seconds", "next_state = 'ASSIGNED'"},
		{"job_assigned_seconds", "next_state = 'RUNNING'"}, {"job_retries_total", "prev_state = 'FAILED' AND next_state = 'QUEUED'"},
	}},
	{true, "reports", [][2]string{{"job_execution_seconds", "started_at IS NOT NULL"}, {"job_retry_outcomes_total", "attempt > 1"}}},
	{true, "delivery_attempts", [][2]string{{"webhook_deliveries_total", "true"}}},
	{false, "jobs WHERE finished_at IS NULL", [][2]string{
		{`jobs_current{state="CREATED"}`, "state = 'CREATED'"}, {`jobs_current{state="QUEUED"}`, "state = 'QUEUED'"},
		{`jobs_current{state="ASSIGNED"}`, "state = 'ASSIGNED'"}, {`jobs_current{state="RUNNING"}`, "state = 'RUNNING'"},
		{"job_queue_depth", "state = 'QUEUED'"},
	}},
	{false, "deliveries WHERE state = 'PENDING'", [][2]string{{"webhook_deliveries_pending", "true"}}},
}

// statisticsTime is set once a process has counted the backlog: before that, its gauges are meaningless.
const statisticsTime = "backlog_timestamp_seconds"

// metrics scrapes until the metrics agree with the rows, at most for MaxWait, since they follow commits.
func (c *collector) metrics(ctx context.Context) error {
	return connected(ctx, c.DatabaseURL, func(conn *pgx.Conn) error {
		measures, err := c.countRows(ctx, conn)
		if err != nil {
			return err
		}
		counted := false
		err = c.poll(ctx, time.Second, func() (agree bool, err error) {
			totals := map[string]float64{}
			for _, url := range c.MetricsURLs {
				if err := scrape(ctx, url, totals); err != nil {
					return false, fmt.Errorf("metrics of %s: %w", judge.RedactURL(url), err)
				}
			}
			counted = totals[statisticsTime] > 0
			agree = counted
			for i := range measures {
				m := &measures[i]
				m.Metric = totals[m.Name]
				agree = agree && m.Metric == m.Rows
			}
			return agree, nil
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
				return fmt.Errorf("the rows counted by %s changed meanwhile", m.Name)
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
		var columns []string
		for _, m := range of.metrics {
			columns = append(columns, "count(*) FILTER (WHERE "+m[1]+")")
		}
		rows, _ := conn.Query(ctx, "SELECT "+strings.Join(columns, ", ")+" FROM "+of.from) // the next line returns its error
		numbers, err := pgx.CollectExactlyOneRow(rows, pgx.CollectableRow.Values)
		if err != nil {
			return nil, err
		}
		for i, m := range of.metrics {
			all = append(all, judge.Measure{Name: m[0], Rows: float64(numbers[i].(int64)), Counter: of.counters})
		}
	}
	return all, nil
}

const scrapeBytes = 16 << 20

var scraper = &http.Client{Timeout: 10 * time.Second}

// scrape adds a process's metrics to the totals, by name and by name{label="value"}; for histograms, the number of observations.
func scrape(ctx context.Context, url string, totals map[string]float64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return errors.New("the address cannot be read")
	}
	response, err := scraper.Do(request)
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
