package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	local "github.com/forgerun/forgerun/internal/stack"
)

func (p *proc) scrape() map[string]*dto.MetricFamily {
	p.t.Helper()
	status, body := p.admin("/metrics")
	require.Equal(p.t, http.StatusOK, status, body)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	require.NoError(p.t, err)
	return families
}

// sum adds up all series of a counter or gauge that have these labels. `labels` alternates names and values.
func sum(families map[string]*dto.MetricFamily, name string, labels ...string) (total float64) {
	for _, m := range families[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.Label {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// metricNames lists the metrics in section 16 of the API contract, and further metrics in the operators' documentation.
var metricNames = []string{
	"jobs_submitted_total", "jobs_queued_total", "jobs_running_total", "jobs_succeeded_total", "jobs_failed_total", "jobs_canceled_total",
	"job_queue_depth", "job_queue_wait_seconds", "job_execution_seconds", "webhook_deliveries_total", "webhook_failures_total",

	"job_retries_total", "job_retry_outcomes_total", "idempotency_hits_total", "job_schedule_lateness_seconds", "job_oldest_due_seconds",
	"job_queued_seconds", "job_assigned_seconds",
	"jobs_current", "workers_alive", "workers_slots", "worker_slots", "worker_slots_used", "worker_kinds_refused",
	"worker_leases_lost_total", "leases_expired_total",
	"fenced_writes_total", "tasks_dropped_total", "maintenance_leader", "maintenance_blocked", "maintenance_jobs_total",
	"maintenance_errors_total",
	"maintenance_round_seconds", "maintenance_last_success_timestamp_seconds", "clock_steps_total",
	"backlog_timestamp_seconds", "webhook_deliveries_pending", "webhook_oldest_pending_seconds", "webhooks_disabled_current",
	"database_errors_total", "database_up", "database_connections", "group_commit_items", "group_commit_seconds",
	"submissions_out_of_order_total", "results_damaged_total", "bulk_items_total",
	"redis_errors_total", "redis_up", "redis_connections", "asynq_queue_tasks", "tasks_enqueued_total", "tasks_ensured_total",
	"connections_refused_total", "accept_failures_total", "log_lines_dropped_total",
	"forgerun_build_info", "go_goroutines", "process_cpu_seconds_total",
}

// Every process exports every metric from its start, with the value 0.
// Promise: contract 16
func TestEveryProcessShowsEveryMetric(t *testing.T) {
	s := newStack(t)
	unset := env{"FORGERUN_ADMIN_ADDR": ""}
	for _, p := range []*proc{s.startAPI(), s.start("worker", unset), s.start("worker", unset), s.startDeliverer(unset)} {
		families := p.scrape()
		for _, name := range metricNames {
			require.NotEmpty(t, families[name].GetMetric(), "%s of %s", name, p.cmd.Args[1])
		}
		for name, f := range families {
			require.NotEmpty(t, f.GetHelp(), name)
			for _, m := range f.Metric {
				for _, l := range m.Label {
					require.NotRegexp(t, `[0-9a-f]{8}-[0-9a-f]{4}-`, l.GetValue(), "%s{%s}: ids must not be labels", name, l.GetName())
				}
			}
		}
	}
	require.NotEmpty(t, s.procs[0].scrape()["http_requests_total"].GetMetric())
}

// The metrics agree with the database (invariant 9 of the design), and every change of state has exactly one log line.
// Promise: contract 16
func TestMetricsAndLogsAgreeWithRows(t *testing.T) {
	s, api, u := newDelivering(t)
	u.receive(api, nil, "job.succeeded", "job.failed")
	var ids []string
	for _, kind := range []string{"SUCCESS_FAST", "PAYLOAD_SMALL", "FAIL_IMMEDIATE", "RETRY_ON_FAIL", "FAIL_AFTER_RETRYABLE"} {
		ids = append(ids, u.submitMany(api, 3, execute(kind))...)
	}
	ids = append(ids, u.submit(api, execute("RETRY_ON_FAIL", `"auto_retry":true`)),
		u.submit(api, `{"type":"EMIT_EVENT","event":{"name":"mine","data":1}}`),
		u.submit(api, deferred(2*time.Second)))
	far := u.submit(api, farAway)
	require.Equal(t, http.StatusOK, u.call(api, "POST", "/v1/jobs/"+far+"/cancel", "").status)
	once := execute("SUCCESS_FAST", `"idempotency_key":"k"`)
	ids = append(ids, far, u.submit(api, once))
	require.Equal(t, ids[len(ids)-1], u.submit(api, once))
	eventually(t, "all have ended", func() bool {
		return s.count(`SELECT count(*) FROM jobs WHERE NOT (`+ended+`)`) == 0
	})
	failed := u.submitAndAwait(api, "FAILED", execute("RETRY_ON_FAIL"))
	retried := u.call(api, "POST", "/v1/jobs/"+failed+"/retry", "")
	require.Equal(t, retried.header.Get("X-Request-Id"), api.logged("job transition", `"action":"retry"`, failed)["request_id"])
	s.await("SUCCEEDED", failed)
	s.awaitDeliveries()

	counts := map[string]string{
		"jobs_submitted_total":   `SELECT count(*) FROM events WHERE event_name = 'job.created'`,
		"jobs_queued_total":      `SELECT count(*) FROM events WHERE next_state = 'QUEUED'`,
		"jobs_running_total":     `SELECT count(*) FROM events WHERE next_state = 'RUNNING'`,
		"jobs_succeeded_total":   `SELECT count(*) FROM events WHERE next_state = 'SUCCEEDED'`,
		"jobs_failed_total":      `SELECT count(*) FROM events WHERE next_state = 'FAILED'`,
		"jobs_canceled_total":    `SELECT count(*) FROM events WHERE next_state = 'CANCELED'`,
		"job_execution_seconds":  `SELECT count(*) FROM reports WHERE started_at IS NOT NULL`,
		"job_queue_wait_seconds": `SELECT count(*) FROM events WHERE next_state = 'ASSIGNED'`,
		"job_queued_seconds":     `SELECT count(*) FROM events WHERE next_state = 'ASSIGNED'`,
		"job_assigned_seconds":   `SELECT count(*) FROM events WHERE next_state = 'RUNNING'`,
		"job_schedule_lateness_seconds": `SELECT count(*) FROM events JOIN jobs USING (job_id)
			WHERE prev_state = 'CREATED' AND next_state = 'QUEUED' AND execution_at IS NOT NULL`,
		"job_retries_total":        `SELECT count(*) FROM events WHERE prev_state = 'FAILED' AND next_state = 'QUEUED'`,
		"job_retry_outcomes_total": `SELECT count(*) FROM reports WHERE attempt > 1`,
		"idempotency_hits_total":   `SELECT 1`,
		"webhook_deliveries_total": `SELECT count(*) FROM delivery_attempts`,
	}
	want, got := map[string]float64{}, map[string]float64{}
	for name, sql := range counts {
		want[name] = float64(s.count(sql))
	}
	eventually(t, "all jobs are counted", func() bool { // metrics are updated shortly after the commit
		clear(got)
		for _, p := range s.procs {
			families := p.scrape()
			for name := range counts {
				got[name] += sum(families, name)
			}
		}
		for name := range counts {
			if got[name] < want[name] {
				return false
			}
		}
		return true
	})
	require.Equal(t, want, got)

	transitions, attempts := map[string]int{}, 0
	for _, p := range s.procs {
		for line := range strings.Lines(p.log.String()) {
			var l map[string]any
			if json.Unmarshal([]byte(line), &l) != nil {
				continue // the last line may be incomplete
			}
			switch l["msg"] {
			case "delivery attempt":
				attempts++
			case "job transition":
				transitions[fmt.Sprint(l["job_id"], " from ", l["current_state"], " to ", l["next_state"])]++
				require.True(t, containsAll(line, []string{`"request_id":"`, `"client_id":"` + u.id, `"action":"`}), line)
				require.Equal(t, l["next_state"] == "FAILED", containsAll(line, []string{`"error_code":"RFA_`, `"error_message":"`}), line)
			}
		}
	}
	stored := map[string]int{}
	for _, r := range structs[struct {
		Transition string
		N          int
	}](s, `SELECT job_id || ' from ' || coalesce(prev_state, '') || ' to ' || next_state, count(*) FROM events
			WHERE next_state IS NOT NULL GROUP BY 1`) {
		stored[r.Transition] = r.N
	}
	require.Equal(t, stored, transitions)
	require.Equal(t, s.count(`SELECT count(*) FROM delivery_attempts`), attempts)
	require.Equal(t, http.StatusUnauthorized, u.look(api, "frk_nobody").status)
	require.Equal(t, "RFA_AUTH_INVALID_CREDENTIALS", api.logged("authentication failed", `"client_id"`, `"reason"`,
		`"request_id"`)["error_code"])
	require.Equal(t, 1.0, sum(api.scrape(), "auth_failures_total"))
	s.checkInvariants()
}

// hang stops all processes of a Postgres server until a call of `resume`. Old and new connections stay open but get no response. hang looks
// for the processes in /proc, because pg_stat_activity lacks sessions that are just starting.
func (s *stack) hang(server *local.Postgres) (resume func()) {
	s.t.Helper()
	parent := strconv.Itoa(server.PID())
	stopped := []int{server.PID()}
	resume = sync.OnceFunc(func() {
		for _, pid := range stopped {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	})
	s.t.Cleanup(resume)
	require.NoError(s.t, syscall.Kill(server.PID(), syscall.SIGSTOP)) // the main process first, because it starts the others
	eventually(s.t, "the server has stopped", func() bool {
		status, err := os.ReadFile("/proc/" + parent + "/status")
		return err == nil && strings.Contains(string(status), "State:\tT")
	})
	for child := range strings.FieldsSeq(readText(s.t, "/proc/"+parent+"/task/"+parent+"/children")) {
		pid, err := strconv.Atoi(child)
		require.NoError(s.t, err)
		stopped = append(stopped, pid)
		require.NoError(s.t, syscall.Kill(pid, syscall.SIGSTOP))
	}
	return resume
}

// While a store is down or hangs, a scrape leaves out the metrics that it cannot read and returns the others.
func TestScrapeDuringOutages(t *testing.T) {
	s, postgres := newStackWithPostgres(t)
	leader := s.startLeader()
	u := s.newUser(leader)
	u.submitMany(leader, 3, execute("SUCCESS_FAST"))
	eventually(t, "all jobs are counted", func() bool {
		all := leader.scrape()
		return sum(all, "database_up") == 1 && sum(all, "redis_up") == 1 && sum(all, "asynq_queue_tasks", "queue", "jobs") == 3
	})
	ready := func(want int, texts ...string) {
		t.Helper()
		eventually(t, fmt.Sprint("readyz says ", want, texts), func() bool {
			a := (&user{s: s}).call(leader, "GET", "/readyz", "")
			return a.status == want && containsAll(a.body, texts)
		})
	}
	shows := func(database, redis float64) (all map[string]*dto.MetricFamily) {
		t.Helper()
		eventually(t, fmt.Sprintf("database_up is %v, redis_up is %v", database, redis), func() bool {
			all = leader.scrape()
			require.Equal(t, 3.0, sum(all, "jobs_submitted_total"))
			return sum(all, "database_up") == database && sum(all, "redis_up") == redis
		})
		return all
	}
	require.NoError(t, s.redis.Pause())
	require.Empty(t, shows(1, 0)["asynq_queue_tasks"].GetMetric(), "no number is better than a wrong one")
	ready(http.StatusOK, `"redis":"unreachable"`, "degraded")
	require.NoError(t, s.redis.Resume())

	resume := s.hang(postgres)
	shows(0, 1)
	require.NoError(t, s.redis.Pause())
	shows(0, 0)
	ready(http.StatusServiceUnavailable, `"postgres":`, `"redis":"unreachable"`, `"migrations":"unknown"`)
	require.NoError(t, s.redis.Resume())
	resume()
	shows(1, 1)

	require.NoError(t, postgres.Kill())
	shows(0, 1)
	ready(http.StatusServiceUnavailable, `"postgres":`, `"migrations":"unknown"`)
	require.NoError(t, postgres.Start(t.Context()))
	s.db.Reset()
	eventually(t, "both stores are up again", func() bool {
		all := leader.scrape()
		return sum(all, "database_up") == 1 && sum(all, "redis_up") == 1 && sum(all, "asynq_queue_tasks", "queue", "jobs") == 3
	})
	s.exec(`DELETE FROM goose_db_version WHERE version_id = (SELECT max(version_id) FROM goose_db_version)`)
	ready(http.StatusServiceUnavailable, `"migrations":"The database schema has version`)
}
