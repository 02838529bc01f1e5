package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/bench/figures"
	"github.com/forgerun/forgerun/internal/bench/lab"
	"github.com/forgerun/forgerun/job"
)

// Targets of a bulk operation beside submissions.
const (
	bulkJobs       = job.MaxBulkItems
	bulkRateTarget = 0.5 // of the rate that was asked for
	bulkDuration   = 30 * time.Second
)

// makeFailed turns seeded jobs that succeeded into failed ones that may be retried.
const makeFailed = `UPDATE jobs SET state = 'FAILED', outcome = 'FAILED', failure_reason = 'ERROR', failure_code = 'RFA_EXEC_FAILED',
	failure_retryable = true, failure_stage = 'processing', failure_detail = 'The work failed.' WHERE client_id = $1`

// Bulk retries 100,000 failed jobs in one operation, without workers, and measures what becomes of submissions meanwhile.
func Bulk(ctx context.Context, l *lab.Lab) (list []figures.Figure, err error) {
	jobs := l.Options.Jobs(bulkJobs)
	seedFailed := func(ctx context.Context, d *lab.Database, jobs int) error {
		err := seed(ctx, d, seeding{jobs: jobs, stage: seedSucceeded, from: time.Hour, to: time.Minute})
		if err == nil {
			_, err = d.Conn.Exec(ctx, makeFailed, d.Client)
		}
		if err == nil {
			_, err = d.Conn.Exec(ctx, "VACUUM ANALYZE jobs")
		}
		return err
	}
	o := l.Options
	o.Env = append(o.Env, unlimited...)
	err = withSeeded(ctx, l, seedFailed, jobs, func(d *lab.Database) error {
		return lab.Serve(ctx, d, o, l.StartService, func(sys lab.System) error {
			list, err = bulkBesideSubmissions(ctx, l, d, sys, jobs)
			return err
		})
	})
	return list, err
}

func bulkBesideSubmissions(ctx context.Context, l *lab.Lab, d *lab.Database, sys lab.System, jobs int) ([]figures.Figure, error) {
	if _, err := submitFor(ctx, sys, 5*time.Second); err != nil { // the warm-up
		return nil, err
	}
	during := max(l.Options.Duration, bulkDuration)
	before, err := submitFor(ctx, sys, during)
	if err != nil {
		return nil, err
	}
	id, err := startBulk(ctx, sys)
	if err != nil {
		return nil, err
	}
	meanwhile, err := submitFor(ctx, sys, during)
	if err != nil {
		return nil, err
	}
	var took, done float64
	err = lab.Poll(ctx, 10*time.Minute, "the bulk operation done", func() (over bool, err error) {
		err = d.Conn.QueryRow(ctx, `SELECT finished_at IS NOT NULL, succeeded::float8,
			coalesce(extract(epoch FROM finished_at - gathered_at), 0)::float8
			FROM bulk_operations WHERE bulk_id = $1`, id).Scan(&over, &done, &took)
		return over, err
	})
	if err != nil {
		return nil, err
	}
	after, err := submitFor(ctx, sys, during)
	if err != nil {
		return nil, err
	}
	alone := (before + after) / 2
	l.Printf("%.0f jobs retried in %.1f s; submit p99 %.2f ms, %.2f ms before and %.2f ms after", done, took, meanwhile, before, after)
	name := short(jobs) + " jobs retried in one operation: "
	return []figures.Figure{
		figures.AtLeast(name+"retried", float64(jobs), done, "jobs", ""),
		figures.AtLeast(name+"rate", bulkRateTarget*job.MaxBulkRate, done/took, "jobs/s", fmt.Sprintf("%d/s asked for", job.MaxBulkRate)),
		figures.AtMost(name+"submit p99 meanwhile", max(meanwhileTarget*alone, meanwhileAllowance), meanwhile, "ms",
			fmt.Sprintf("%.2f ms before and %.2f ms after, at 200/s, open loop", before, after)),
	}, nil
}

// startBulk begins the retry of all failed jobs, as fast as may be.
func startBulk(ctx context.Context, sys lab.System) (id string, err error) {
	body := fmt.Appendf(nil, `{"action":"retry","filter":{"state":"FAILED"},"rate":%d}`, job.MaxBulkRate)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(sys.URL, "/jobs")+"/bulk", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+sys.Key)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "bulk")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err
	}
	var receipt struct {
		BulkID string `json:"bulk_id"`
	}
	if err := json.Unmarshal(text, &receipt); err != nil || receipt.BulkID == "" {
		return "", fmt.Errorf("bulk: %s: %s", answer.Status, text)
	}
	return receipt.BulkID, nil
}
