package trial

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/stack"
)

func TestJudgeOfARealService(t *testing.T) {
	t.Parallel()
	p := play(t)
	collected, v := p.judge()
	require.Empty(t, collected.Missing)
	require.Empty(t, v.Violations)
	for _, invariant := range judge.Invariants {
		require.Positive(t, v.Of(invariant.Key).Checked, invariant.Key)
		require.Empty(t, v.Of(invariant.Key).Skipped, invariant.Key)
	}
	p.config.MaxWait = 100 * time.Millisecond
	p.unreadableSources()
	p.externalService()
	p.otherClientsData()
	p.damagedRows()
}

func (p *played) externalService() {
	o := Options{URL: p.trial.stack.URL, DatabaseURL: p.trial.o.DatabaseURL}
	for _, metrics := range p.config.MetricsURLs {
		o.AdminURLs = append(o.AdminURLs, strings.TrimSuffix(metrics, "metrics"))
	}
	outside := prepared(p.t, "jobs: 3\narrival: {closed: {clients: 1}}\nmix: [{kind: SUCCESS_FAST}]", o)
	require.NoError(p.t, outside.Drive(p.t.Context()))
	v, err := outside.Judge(p.t.Context())
	require.NoError(p.t, err)
	require.Empty(p.t, v.Violations)
	require.Positive(p.t, v.Of("metrics").Checked, v.Of("metrics").Skipped)
}

func (p *played) otherClientsData() {
	_, key, err := stack.Register(p.t.Context(), p.trial.stack.URL)
	require.NoError(p.t, err)
	c, err := client.New(client.Config{URL: p.trial.stack.URL, Key: key})
	require.NoError(p.t, err)
	_, err = c.Submit(p.t.Context(), client.JobRequest{
		Type: client.Deferred, WorkKind: client.KindSuccessFast, ExecutionAt: time.Now().Add(time.Hour),
	})
	require.NoError(p.t, err)
	p.exec(`INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, resource_id, state, created_at, expires_at)
		SELECT client_id, endpoint, 'expired', request_hash, resource_id, state, created_at, now()
		FROM idempotency_keys WHERE resource_id IS NOT NULL LIMIT 1`)
	metrics := p.config.MetricsURLs
	p.config.MetricsURLs = nil // the metrics may not include the new job yet
	collected, v := p.judge()
	require.Empty(p.t, collected.Missing)
	require.Empty(p.t, v.Violations)
	p.config.MetricsURLs = metrics
}

func (p *played) unreadableSources() {
	good := p.config
	idle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "backlog_timestamp_seconds 0\n")
	}))
	p.t.Cleanup(idle.Close)
	for why, c := range map[string]struct {
		source judge.Source
		remove func(c *collect.Config)
	}{
		"failed to connect":   {judge.Rows, func(c *collect.Config) { c.DatabaseURL = "postgres://user:hush@127.0.0.1:1/none" }},
		"refused":             {judge.Queue, func(c *collect.Config) { c.RedisURL = "redis://:hush@127.0.0.1:1/0" }},
		"returned status 404": {judge.Metrics, func(c *collect.Config) { c.MetricsURLs = []string{p.trial.stack.URL + "/nothing"} }},
		"no process reported": {judge.Metrics, func(c *collect.Config) { c.MetricsURLs = []string{idle.URL} }},
		"jobs of tenant 0": {judge.Lists, func(c *collect.Config) {
			stranger, err := client.New(client.Config{URL: p.trial.stack.URL, Key: "frk_hush"})
			require.NoError(p.t, err)
			c.Accounts = []history.Account{{ClientID: c.Accounts[0].ClientID, Client: stranger}}
		}},
	} {
		p.config = good
		c.remove(&p.config)
		collected, v := p.judge()
		require.Contains(p.t, collected.Missing[c.source], why)
		require.NotContains(p.t, fmt.Sprint(collected.Missing), "hush")
		require.Empty(p.t, v.Violations, why)
		for _, invariant := range judge.Invariants {
			require.True(p.t, v.Of(invariant.Key).Checked > 0 || v.Of(invariant.Key).Skipped != "", "%s passed silently", invariant.Key)
		}
	}
	p.config = good
}

// damages are SQL statements and the violations that the judge must find. Each statement damages a different job. All these jobs succeeded
// on their first attempt.
var damages = []struct{ sql, want string }{
	{"DELETE FROM jobs WHERE job_id = $1", "accepted: the job was accepted, but no longer exists"},
	{"DELETE FROM results WHERE job_id = $1", "final: a SUCCEEDED job has no result"},
	{"WITH older AS (UPDATE webhooks SET (created_at, updated_at) = (created_at - interval '1 min', created_at - interval '1 min')) " +
		"DELETE FROM deliveries WHERE job_id = $1", "delivery: event 5 (job.succeeded) has no delivery to webhook "},
	{"DELETE FROM delivery_attempts WHERE delivery_id IN (SELECT delivery_id FROM deliveries WHERE job_id = $1)",
		"delivery: a delivery's number of attempts differs from the recorded attempts"},
	{"UPDATE jobs SET fence = 7 WHERE job_id = $1", "fence: a job's number of claims or lost leases differs from its events"},
	{"UPDATE jobs SET client_id = gen_random_uuid() WHERE job_id = $1", "foreign: a row of tenant "},
	{"UPDATE events SET client_id = gen_random_uuid() WHERE seq = 3 AND job_id = $1", "foreign: a stored event of tenant "},
	{"UPDATE events SET event_name = 'event.emitted', prev_state = NULL, next_state = NULL WHERE seq = 3 AND job_id = $1",
		"log: 1 events were emitted for the client, expected 0"},
	{"UPDATE idempotency_keys SET expires_at = now() WHERE resource_id = $1", "key: the job's idempotency key is not stored"},
	{"UPDATE deliveries SET state = 'FAILED', last_error = 'HTTP_5XX', last_status = 500 WHERE job_id = $1",
		" must not be FAILED (HTTP_5XX, last status 500) after "},
	{"UPDATE batches SET failed = failed + 1 WHERE $1 <> '' AND batch_id = (SELECT min(batch_id::text)::uuid FROM batches)",
		"final: a batch's counts, event and items differ"},
}

func (p *played) damagedRows() {
	p.exec(`SET session_replication_role = replica`) // no triggers, no foreign keys
	rows, err := p.db.Query(p.t.Context(), `SELECT job_id::text FROM jobs j WHERE state = 'SUCCEEDED' AND attempt = 1 AND batch_id IS NULL
		AND type <> 'EMIT_EVENT' AND EXISTS (SELECT FROM deliveries d WHERE d.job_id = j.job_id AND d.webhook_id IS NOT NULL)
		ORDER BY job_id LIMIT $1`, len(damages))
	require.NoError(p.t, err)
	victims, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(p.t, err)
	require.Len(p.t, victims, len(damages), "one job for each statement")
	for n, d := range damages {
		p.exec(d.sql, victims[n])
	}
	address, err := url.Parse(p.config.RedisURL)
	require.NoError(p.t, err)
	redis, err := net.Dial("tcp", address.Host)
	require.NoError(p.t, err)
	_, err = fmt.Fprintf(redis, "HSET asynq:{jobs}:t:%s:1:0 state pending\r\n", victims[0])
	require.NoError(p.t, err)
	_, err = redis.Read(make([]byte, 1))
	require.NoError(p.t, err)
	require.NoError(p.t, redis.Close())

	_, v := p.judge()
	text := fmt.Sprint(v.Violations)
	for n, d := range damages {
		require.True(p.t, slices.ContainsFunc(v.Violations, func(v judge.Violation) bool {
			return strings.Contains(v.Invariant+": "+v.What, d.want) && (v.Job == victims[n] || v.Job == "")
		}), "%s of %s\n%s", d.want, victims[n], text)
	}
	for _, violation := range v.Violations {
		require.Contains(p.t, append(victims, ""), violation.Job, violation.What)
	}
	require.Contains(p.t, text, "metrics: metric webhook_deliveries_total is ")
	require.Contains(p.t, text, "queue: queue task "+victims[0])
	require.NoError(p.t, p.trial.Write(p.trial.Summarize(p.trial.recorder.Run(), v)))
	require.DirExists(p.t, filepath.Join(p.trial.o.Out, HistoryFolder), "the history of a run with violations is kept")
	require.FileExists(p.t, filepath.Join(p.trial.o.Out, "logs", "api-1.log"))
}
