// Package collect reads the API, the rows, the queue and the metrics at the end of a simulator run. It adds what it read to the history,
// as facts.
package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

// Config selects the sources that Run reads.
type Config struct {
	Since    time.Time // jobs created before this time are not listed; zero: all jobs are listed
	Accounts []history.Account

	DatabaseURL, RedisURL string
	MetricsURLs           []string // one for each process of the service

	SampleReports int  // number of jobs whose reports, results and deliveries are read over HTTP
	DeliveryLogs  bool // also read each delivery by its id, because lists of deliveries have no attempts
	Seed          uint64

	MaxWait time.Duration // limit of each wait: for an empty queue, and for metrics that match the rows; 0: 15 s
}

// foreignTenant is the tenant number of all clients outside the run.
const foreignTenant = math.MaxInt32

type collector struct {
	Config
	run   judge.RunContext
	out   interface{ Add(history.Fact) }
	found judge.Collected

	asOf        time.Time      // time of the transaction that reads the rows, by Postgres' clock
	tenants     map[string]int // tenant number of each client id
	clientIDs   []string       // clients that the run created, so all data of these clients belongs to the run
	otherTenant int            // tenant number of the clients that are not in `tenants`
}

// Run reads the sources after a run and adds their state to the history. It lists unreadable sources in Collected.Missing. Run returns an
// error only if ctx ends.
func Run(ctx context.Context, config Config, run judge.RunContext, out interface{ Add(history.Fact) }) (judge.Collected, error) {
	c := &collector{Config: config, run: run, out: out, tenants: map[string]int{}, clientIDs: []string{}, otherTenant: foreignTenant}
	c.MaxWait = cmp.Or(config.MaxWait, 15*time.Second)
	c.found = judge.Collected{Asked: map[judge.Source]bool{}, Missing: map[judge.Source]string{}, Webhooks: map[string]time.Time{}}
	for _, a := range c.Accounts {
		if a.ClientID == "" {
			c.otherTenant = a.Tenant
			continue
		}
		c.tenants[a.ClientID] = a.Tenant
		c.clientIDs = append(c.clientIDs, a.ClientID)
	}
	var sample []sampledJob
	c.ask(judge.Lists, len(c.Accounts) > 0, func() (err error) { sample, err = c.lists(ctx); return err })
	c.ask(judge.Reports, len(c.Accounts) > 0 && c.SampleReports > 0, func() error { return c.reports(ctx, sample) })
	c.ask(judge.Rows, c.DatabaseURL != "", func() error { return c.rows(ctx) })
	c.ask(judge.Queue, c.RedisURL != "", func() error { return c.queue(ctx) })
	c.ask(judge.Metrics, len(c.MetricsURLs) > 0 && c.DatabaseURL != "", func() error { return c.metrics(ctx) })
	return c.found, context.Cause(ctx)
}

// If the source is configured (`given`), ask reads it. If this fails, ask records the reason without secrets.
func (c *collector) ask(s judge.Source, given bool, read func() error) {
	if !given {
		return
	}
	c.found.Asked[s] = true
	if err := read(); errors.Is(err, context.Canceled) {
		c.found.Missing[s] = "the collecting was interrupted"
	} else if err != nil {
		c.found.Missing[s] = term.Masked(err.Error())
	}
}

func (c *collector) add(f history.Fact) {
	f.At = cmp.Or(f.At, time.Now().UTC())
	c.out.Add(f)
}

func (c *collector) poll(ctx context.Context, interval time.Duration, check func() (done bool, err error)) error {
	for deadline := time.Now().Add(c.MaxWait); ; {
		done, err := check()
		if done || err != nil || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(interval):
		}
	}
}

func connected(ctx context.Context, databaseURL string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	return do(conn)
}

// CheckStores checks before a run that the stores are readable. It skips a store without a URL.
func CheckStores(ctx context.Context, databaseURL, redisURL string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if databaseURL != "" {
		if _, err := PendingDeliveries(ctx, databaseURL, nil, time.Now()); err != nil {
			return fmt.Errorf("read the database: %s", strings.Join(strings.Fields(err.Error()), " ")) // the error on one line
		}
	}
	if redisURL == "" {
		return nil
	}
	rdb, err := openRedis(redisURL)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }()
	if err := rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("the Redis server does not respond: %w", err)
	}
	return nil
}

// PendingDeliveries counts the pending deliveries of the clients. If clientIDs is empty, it counts all pending deliveries created since the
// given time.
func PendingDeliveries(ctx context.Context, databaseURL string, clientIDs []string, since time.Time) (n int64, err error) {
	err = connected(ctx, databaseURL, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT count(*) FROM deliveries WHERE state = 'PENDING'
			AND CASE WHEN cardinality($1::uuid[]) > 0 THEN client_id = ANY ($1) ELSE created_at >= $2 END`, clientIDs, since).Scan(&n)
	})
	return n, err
}

// countedRows lists metrics and the rows that each metric must count.
var countedRows = []struct {
	counters bool // the metrics are counters, not gauges
	from     string
	metrics  [][2]string // name of a metric, and condition of the rows that the metric must count
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

// A process sets this metric after it has counted the backlog for the first time. Before that, its gauges are not valid.
const statisticsTime = "backlog_timestamp_seconds"

// A process changes its metrics only after the commit of the rows. So the method reads the metrics until they match the rows or MaxWait is
// over.
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
					return false, fmt.Errorf("read the metrics of %s: %w", judge.RedactURL(url), err)
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
			return errors.New("no process reported metrics that count jobs, workers and deliveries")
		}
		after, err := c.countRows(ctx, conn)
		if err != nil {
			return err
		}
		for i, m := range measures {
			if after[i].Rows != m.Rows {
				return fmt.Errorf("%s counts rows that changed during the check", m.Name)
			}
		}
		c.found.Measured = measures
		return nil
	})
}

func (c *collector) countRows(ctx context.Context, conn *pgx.Conn) (all []judge.Measure, err error) {
	for _, of := range countedRows {
		if of.counters && !c.run.Counters {
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

// scrape adds the value of each metric to totals[name], and for each label to totals[`name{label="value"}`]. For a histogram, it adds the
// number of observations.
func scrape(ctx context.Context, url string, totals map[string]float64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return errors.New("the address is not a valid URL")
	}
	response, err := scraper.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the admin listener returned status %d", response.StatusCode)
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
