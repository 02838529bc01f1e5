package collect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/repo/repotest"
)

// Ids of the service that Collect is shown.
const (
	theClient  = "11111111-1111-4111-8111-111111111111"
	theOther   = "22222222-2222-4222-8222-222222222222"
	theJob     = "33333333-3333-7333-8333-333333333333"
	othersRow  = "44444444-4444-7444-8444-444444444444"
	theWebhook = "55555555-5555-7555-8555-555555555555"
	noJob      = "66666666-6666-7666-8666-666666666666"
	theBatch   = "88888888-8888-7888-8888-888888888888"
)

// service is what there is to collect: a database with one job of the run and one
// of somebody else, an API that tells the first, a Redis, and metrics.
type service struct {
	t       *testing.T
	db      *pgx.Conn
	rdb     *redis.Client
	began   time.Time
	config  Config
	metrics string
	dir     string
	id      string // of the delivery
	broken  string // path that the API answers with 500
	result  []byte
	digest  string // in place of the result's
}

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func printed(v *judge.Verdict) string {
	var text strings.Builder
	for _, violation := range v.Violations {
		violation.Write(&text)
	}
	return text.String()
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t, dir: t.TempDir()}
	url := repotest.URL(t)
	var err error
	s.db, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.db.Close(context.Background()) })
	s.config = Config{Run: "run1", DatabaseURL: url, RedisURL: s.startRedis(), SampleReports: 10, Seed: 1,
		MaxWait: 100 * time.Millisecond, Counters: true}
	s.result = make([]byte, 4096)
	s.fill()
	api := httptest.NewServer(http.HandlerFunc(s.answer))
	t.Cleanup(api.Close)
	c, err := client.New(client.Config{URL: api.URL, Key: "frk_test", MaxTries: 1})
	require.NoError(t, err)
	s.config.Accounts = []Account{{Tenant: 0, ClientID: theClient, Client: c}}
	s.config.MetricsURLs = []string{api.URL + "/metrics"}
	s.metrics = "backlog_timestamp_seconds 1\njobs_submitted_total{work_kind=\"a\"} 1\njobs_submitted_total{work_kind=\"b\"} 1\n" +
		"jobs_queued_total 2\njobs_running_total 1\n" +
		"jobs_succeeded_total 1\njobs_failed_total 0\njobs_canceled_total 0\njob_retries_total 0\njob_retry_outcomes_total 0\n" +
		"webhook_deliveries_total 1\n" +
		"# TYPE job_queue_wait_seconds histogram\njob_queue_wait_seconds_bucket{le=\"+Inf\"} 1\njob_queue_wait_seconds_sum 1\n" +
		"job_queue_wait_seconds_count 1\n" +
		"# TYPE job_queued_seconds histogram\njob_queued_seconds_bucket{le=\"+Inf\"} 1\njob_queued_seconds_sum 1\njob_queued_seconds_count 1\n" +
		"# TYPE job_assigned_seconds histogram\njob_assigned_seconds_bucket{le=\"+Inf\"} 1\n" +
		"job_assigned_seconds_sum 1\njob_assigned_seconds_count 1\n" +
		"# TYPE job_execution_seconds histogram\njob_execution_seconds_bucket{le=\"+Inf\"} 1\njob_execution_seconds_sum 1\n" +
		"job_execution_seconds_count 1\n" +
		"jobs_current{state=\"CREATED\"} 0\njobs_current{state=\"QUEUED\"} 1\njobs_current{state=\"RUNNING\"} 0\n" +
		"job_queue_depth 1\nwebhook_deliveries_pending 0\n"
	return s
}

func (s *service) startRedis() string {
	dir, err := devstack.MkdirTemp("forgerun-test-")
	require.NoError(s.t, err)
	server, err := devstack.StartRedis(s.t.Context(), devstack.RedisOptions{Dir: filepath.Join(dir, "redis")})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		require.NoError(s.t, server.Kill())
		require.NoError(s.t, os.RemoveAll(dir))
	})
	options, err := redis.ParseURL(server.URL())
	require.NoError(s.t, err)
	s.rdb = redis.NewClient(options)
	s.t.Cleanup(func() { _ = s.rdb.Close() })
	return server.URL()
}

func (s *service) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.db.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

// fill writes the rows of a job that succeeded after a second, and was delivered.
func (s *service) fill() {
	s.began = time.Now().UTC().Truncate(time.Microsecond).Add(-time.Minute)
	end := s.began.Add(time.Second)
	s.exec(`INSERT INTO clients (client_id) VALUES ($1), ($2)`, theClient, theOther)
	s.exec(`INSERT INTO webhooks (webhook_id, client_id, url, events, description, content_mode, secret, created_at, updated_at)
		VALUES ($1, $2, 'http://receiver/0', '{job.succeeded}', '', 'binary', 'x', $3, $3)`, theWebhook, theClient, s.began)
	insert := `INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, outcome, attempt, max_attempts,
		auto_retry, event_seq, fence,
		created_at, updated_at, run_at, queued_at, started_at, finished_at, correlation_id, language, request_id)
		VALUES ($1, $2, 'EXECUTE', 'SUCCESS_FAST', '{"duration_ms": 1000, "should_fail": false}', $3, $4, 1, 4, false, $5,
		$6, $7, $8, $7, $7, $9, $10, $11, 'en', 'r')`
	s.exec(insert, theJob, theClient, client.Succeeded, "SUCCESS", 5, 1, s.began, end, s.began, end, "run1.1")
	s.exec(insert, othersRow, theOther, client.Queued, nil, 2, 0, s.began, s.began, nil, nil, nil)
	s.exec(`INSERT INTO reports (job_id, attempt, outcome, started_at, finished_at, duration_ms, event_seq)
		VALUES ($1, 1, 'SUCCESS', $2, $3, 1000, 5)`, theJob, s.began, end)
	s.exec(`INSERT INTO results (job_id, attempt, media_type, size, sha256, expires_at, body)
		VALUES ($1, 1, 'text/plain', 1, sha256('x'), now() + interval '1 h', 'x')`, theJob)
	s.exec(`INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, resource_id, created_at, expires_at)
		VALUES ($1, 'jobs', 'key-1', '', $2, $3, now() + interval '1 h')`, theClient, theJob, s.began)
	for _, e := range s.log() {
		s.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data)
			VALUES ($1, $2, $3, $4, $5, nullif($6, ''), $7, 1, $8, '{"work_kind": "SUCCESS_FAST", "duration_ms": 1000}')`,
			theJob, theClient, e.Seq, e.ID, e.Name, e.Prev, e.Next, e.At)
	}
	s.exec(`INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt, occurred_at, data) VALUES
		($1, $2, 1, gen_random_uuid(), 'job.created', NULL, 'CREATED', 1, now(), '{"work_kind": "SUCCESS_FAST", "duration_ms": 1000}'),
		($1, $2, 2, gen_random_uuid(), 'job.queued', 'CREATED', 'QUEUED', 1, now(), '{"work_kind": "SUCCESS_FAST", "duration_ms": 1000}')`,
		othersRow, theOther)
	s.exec(`UPDATE jobs SET event_tx = tx FROM events e WHERE e.job_id = jobs.job_id AND seq = event_seq`)
	s.exec(`INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused, status, completed_at, succeeded,
		failed, canceled, failures) VALUES ($1, $2, $3, 'en', 'r', '[1, 2]', 1, 'COMPLETED_WITH_ERRORS', $3, 1, 1, 0, '[]')`, theBatch,
		theClient, s.began)
	s.exec(`INSERT INTO client_events (event_id, client_id, event_name, occurred_at, batch_id, data) VALUES (gen_random_uuid(), $1,
		'batch.completed', $3, $2, '{"status": "COMPLETED_WITH_ERRORS", "total": 2, "succeeded": 1, "failed": 1, "canceled": 0}')`,
		theClient, theBatch, s.began)
	s.exec(`UPDATE deliveries SET state = 'DELIVERED', attempts = 1, settled_at = now(), next_attempt_at = NULL, last_status = 204`)
	s.exec(`INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms, status) SELECT delivery_id, 1, created_at, 1, 204
		FROM deliveries`)
	require.NoError(s.t, s.db.QueryRow(s.t.Context(), `SELECT delivery_id::text FROM deliveries`).Scan(&s.id))
}

func (s *service) log() (all []history.Event) {
	state := ""
	names := []string{"job.created", "job.queued", "job.assigned", "job.running", "job.succeeded"}
	for i, next := range []string{client.Created, client.Queued, client.Assigned, client.Running, client.Succeeded} {
		e := history.Event{ID: fmt.Sprintf("77777777-7777-7777-8777-77777777777%d", i), Seq: i + 1, Name: names[i], Prev: state,
			Next: next, Attempt: 1, At: s.began}
		if next == client.Succeeded {
			e.At = s.began.Add(time.Second)
		}
		all, state = append(all, e), next
	}
	return all
}

// answer is the API.
func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	end := s.began.Add(time.Second)
	page := func(item any) any {
		return map[string]any{"data": []any{item}, "page": map[string]any{"limit": 100, "next_cursor": nil}}
	}
	var body any
	switch {
	case s.broken != "" && strings.HasPrefix(r.URL.Path, s.broken):
		w.WriteHeader(http.StatusInternalServerError)
		return
	case r.URL.Path == "/metrics":
		_, _ = w.Write([]byte(s.metrics))
		return
	case strings.HasSuffix(r.URL.Path, "/result"):
		sum := sha256.Sum256(s.result)
		w.Header().Set("Repr-Digest", "sha-256=:"+cmp.Or(s.digest, base64.StdEncoding.EncodeToString(sum[:]))+":")
		_, _ = w.Write(s.result)
		return
	case r.URL.Path == "/v1/jobs":
		body = page(map[string]any{
			"job_id": theJob, "type": "EXECUTE", "work_kind": "SUCCESS_FAST", "state": client.Succeeded, "outcome": "SUCCESS",
			"attempt": 1, "max_attempts": 4,
			"created_at": s.began, "updated_at": end, "started_at": s.began, "finished_at": end, "correlation_id": "run1.1",
		})
	case strings.HasSuffix(r.URL.Path, "/report"):
		var events []any
		for _, e := range s.log() {
			events = append(events, map[string]any{
				"event_id": e.ID, "seq": e.Seq, "job_id": theJob, "event_name": e.Name, "prev_state": e.Prev, "next_state": e.Next,
				"attempt": 1, "timestamp": e.At,
				"data": map[string]any{"work_kind": "SUCCESS_FAST", "duration_ms": 1000, "expected_outcome": client.Succeeded},
			})
		}
		body = map[string]any{"job_id": theJob, "attempt": 1, "outcome": "SUCCESS", "started_at": s.began, "finished_at": end,
			"duration_ms": 1000, "events": events}
	case strings.HasSuffix(r.URL.Path, "/deliveries"):
		body = page(map[string]any{"delivery_id": s.id, "webhook_id": theWebhook, "job_id": theJob, "event_id": s.log()[4].ID,
			"event_name": "job.succeeded", "seq": 5, "state": "DELIVERED", "attempts": 1})
	default:
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

// collect runs Collect and judges what it found together with what a client saw.
func (s *service) collect() (judge.Collected, *judge.Verdict) {
	s.t.Helper()
	dir := filepath.Join(s.dir, fmt.Sprint(time.Now().UnixNano()))
	out, err := history.Create(dir)
	require.NoError(s.t, err)
	out.Add(history.Fact{Kind: history.Submitted, Ticket: 1, Job: theJob, Submission: &history.Submission{
		Key: "key-1", Type: "EXECUTE", WorkKind: "SUCCESS_FAST",
		Tries: []history.Try{{
			Sent: s.began, Answered: s.began, Status: 202, Job: theJob, State: client.Queued, CreatedAt: s.began, Location: "/v1/jobs/" + theJob,
		}},
	}})
	ms := int64(1000)
	out.Add(history.Fact{At: s.began.Add(2 * time.Second), Kind: history.Received, Job: theJob, Delivery: &history.Delivery{
		ID: s.id, Webhook: theWebhook, EventID: s.log()[4].ID, EventName: "job.succeeded", Seq: 5, Status: 204, Body: "digest",
		JobStatus: "COMPLETED", WorkKind: "SUCCESS_FAST",
		Scenario: &history.Scenario{WorkKind: "SUCCESS_FAST", DurationMS: &ms, Expected: client.Succeeded},
	}})
	found, err := Run(s.t.Context(), s.config, out)
	require.NoError(s.t, err)
	require.NoError(s.t, out.Close())
	r, err := history.Open(dir)
	require.NoError(s.t, err)
	scale := 1.0
	v, err := judge.Judge(s.t.Context(), r, judge.RunContext{
		Run: "run1", Tickets: 1, TimeScale: &scale, Counters: true, Collected: found,
		Webhooks: []judge.Webhook{{ID: theWebhook, Events: []string{"job.succeeded"}}},
	})
	require.NoError(s.t, err)
	return found, v
}

// All sources are read, and what they say of a sound service is sound.
func TestCollect(t *testing.T) {
	t.Parallel()
	s := newService(t)
	found, v := s.collect()
	require.Empty(t, found.Missing)
	require.Empty(t, printed(v))
	require.EqualValues(t, 1, v.Jobs, "another client's job is not the run's")
	require.EqualValues(t, 2+12, v.Facts, "two of the client; list, report, delivery; job, 5 events, report, delivery, attempt")
	for _, invariant := range judge.Invariants {
		if invariant.Key != "stream" && invariant.Key != "early" {
			require.Positive(t, v.Checked[invariant.Key], invariant.Key)
			require.Empty(t, v.Skipped[invariant.Key], invariant.Key)
		}
	}
}

// Damage in any of the sources is found.
func TestCollectFindsDamage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage    func(s *service)
		invariant string
	}{
		"an event is lost":             {func(s *service) { s.exec(`DELETE FROM events WHERE job_id = $1 AND seq = 3`, theJob) }, "log"},
		"an event is another client's": {func(s *service) { s.exec(`UPDATE events SET client_id = $1 WHERE seq = 3`, theOther) }, "foreign"},
		"the job is another client's":  {func(s *service) { s.exec(`UPDATE jobs SET client_id = $1`, theOther) }, "foreign"},
		"the report is lost":           {func(s *service) { s.exec(`DELETE FROM reports`) }, "final"},
		"the job is lost":              {func(s *service) { s.exec(`DELETE FROM jobs WHERE job_id = $1`, theJob) }, "accepted"},
		"the result is lost":           {func(s *service) { s.exec(`DELETE FROM results`) }, "final"},
		"the fence is off":             {func(s *service) { s.exec(`UPDATE jobs SET fence = 2 WHERE job_id = $1`, theJob) }, "fence"},
		"there are two keys": {func(s *service) {
			s.exec(`INSERT INTO idempotency_keys SELECT client_id, endpoint, 'other', request_hash, resource_id, state, created_at, expires_at
				FROM idempotency_keys`)
		}, "key"},
		"the delivery is lost": {func(s *service) { s.exec(`DELETE FROM deliveries`) }, "delivery"},
		"the attempt is lost":  {func(s *service) { s.exec(`DELETE FROM delivery_attempts`) }, "delivery"},
		"a batch has no event": {func(s *service) {
			s.exec(`INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused,
				status, completed_at, succeeded, failed, canceled, failures)
				VALUES (gen_random_uuid(), $1, now(), 'en', 'r', '[]', 0, 'COMPLETED', now(), 0, 0, 0, '[]')`, theClient)
		}, "final"},
		"a counter is off": {func(s *service) {
			s.metrics = strings.Replace(s.metrics, "jobs_succeeded_total 1", "jobs_succeeded_total 2", 1)
		}, "metrics"},
		"a gauge is off":              {func(s *service) { s.metrics = strings.Replace(s.metrics, `"QUEUED"} 1`, `"QUEUED"} 0`, 1) }, "metrics"},
		"a delivery is told wrongly":  {func(s *service) { s.id = "other" }, "answers"},
		"a task is left":              {func(s *service) { s.task(theJob) }, "queue"},
		"a task has no job":           {func(s *service) { s.task(noJob) }, "queue"},
		"no key is alive":             {func(s *service) { s.exec(`UPDATE idempotency_keys SET expires_at = now()`) }, "key"},
		"the result has another size": {func(s *service) { s.result = s.result[1:] }, "catalogue"},
		"the result is damaged":       {func(s *service) { s.digest = base64.StdEncoding.EncodeToString(make([]byte, 32)) }, "answers"},
		"an event is the client's own, and nobody asked for it": {func(s *service) {
			s.exec(`UPDATE events SET event_name = 'event.emitted', prev_state = NULL, next_state = NULL, data = '{"name": "simulated", "data": 1}'
				WHERE job_id = $1 AND seq = 3`, theJob)
		}, "log"},
		"a delivery waits past its time": {func(s *service) {
			s.exec(`UPDATE deliveries SET state = 'PENDING', settled_at = NULL, next_attempt_at = now() - interval '1 s'`)
		}, "delivery"},
		"a delivery failed at once": {func(s *service) {
			s.exec(`UPDATE deliveries SET state = 'FAILED', last_error = 'HTTP_5XX', last_status = 500`)
			s.exec(`UPDATE delivery_attempts SET error = 'HTTP_5XX', status = 500`)
		}, "delivery"},
		"a batch counts otherwise than its event": {func(s *service) { s.exec(`UPDATE batches SET failed = 2`) }, "final"},
		"the job failed otherwise than its report": {func(s *service) {
			s.exec(`UPDATE jobs SET failure_reason = 'x' WHERE job_id = $1`, theJob)
		}, "final"},
		"the job ended at another time than its event": {func(s *service) {
			s.exec(`UPDATE jobs SET finished_at = finished_at + interval '1 ms' WHERE job_id = $1`, theJob)
		}, "log"},
		"the result is another one":       {func(s *service) { s.exec(`UPDATE results SET body = 'y'`) }, "answers"},
		"the job has another label":       {func(s *service) { s.exec(`UPDATE jobs SET event_tx = '1' WHERE job_id = $1`, theJob) }, "stream"},
		"an event has other data":         {func(s *service) { s.exec(`UPDATE events SET data = '{}' WHERE seq = 2`) }, "stream"},
		"a key is another client's":       {func(s *service) { s.exec(`UPDATE idempotency_keys SET client_id = $1`, theOther) }, "key"},
		"a delivery has another answer":   {func(s *service) { s.exec(`UPDATE deliveries SET last_status = 200`) }, "delivery"},
		"an attempt has another number":   {func(s *service) { s.exec(`UPDATE delivery_attempts SET number = 2`) }, "delivery"},
		"a delivery has another endpoint": {func(s *service) { s.exec(`UPDATE deliveries SET endpoint_id = gen_random_uuid()`) }, "delivery"},
		"a callback leads elsewhere": {func(s *service) {
			s.exec(`UPDATE deliveries SET webhook_id = NULL, url = 'http://receiver/1'`)
		}, "delivery"},
		"a report is told wrongly": {func(s *service) { s.exec(`UPDATE reports SET duration_ms = 1001`) }, "answers"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			test.damage(s)
			_, v := s.collect()
			found := false
			for _, violation := range v.Violations {
				found = found || violation.Invariant == test.invariant
			}
			require.True(t, found, "%s\n%v", printed(v), v.Skipped)
		})
	}
}

// A second key that has expired is none.
func TestCollectLeavesExpiredKeysAlone(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.exec(`INSERT INTO idempotency_keys SELECT client_id, endpoint, 'other', request_hash, resource_id, state, created_at, now()
		FROM idempotency_keys`)
	_, v := s.collect()
	require.Empty(t, printed(v))
}

// Counters that are not compared are not waited for.
func TestCollectWaitsForNoCounterInVain(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.config.Counters, s.config.MaxWait = false, time.Hour
	s.config.RedisURL = "" // which is waited for too
	s.metrics = strings.Replace(s.metrics, "jobs_succeeded_total 1", "jobs_succeeded_total 0", 1)
	found, v := s.collect()
	require.Empty(t, found.Missing)
	require.Empty(t, printed(v))
	require.Positive(t, v.Checked["metrics"])
	require.Contains(t, v.Skipped["metrics"], "counters")
}

// task queues a task of a job, as asynq keeps it.
func (s *service) task(job string) {
	require.NoError(s.t, s.rdb.HSet(s.t.Context(), "asynq:{jobs}:t:"+job+":1:0", "state", "pending").Err())
}

// Tasks of other clients' jobs are not the run's business, and what is gone soon
// is none at all.
func TestCollectLeavesOthersTasksAlone(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.task(othersRow)
	for i, state := range []string{"scheduled", "archived", "active"} { // they show deliveries
		key := fmt.Sprintf("asynq:{webhooks}:t:%s:%s:%d", theWebhook, s.id, i)
		require.NoError(t, s.rdb.HSet(t.Context(), key, "state", state).Err())
	}
	found, v := s.collect()
	require.Empty(t, found.Missing)
	require.Empty(t, printed(v))
}

// A source that is away or breaks off is told, with the reason and no secret; the
// others are read all the same.
func TestCollectTellsWhatIsMissing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		miss   func(s *service)
		source judge.Source
		why    string
	}{
		"no database":   {func(s *service) { s.config.DatabaseURL = "postgres://user:hush@127.0.0.1:1/none" }, judge.Rows, "failed to connect"},
		"no Redis":      {func(s *service) { s.config.RedisURL = "redis://:hush@127.0.0.1:1/0" }, judge.Queue, "refused"},
		"no metrics":    {func(s *service) { s.broken = "/metrics" }, judge.Metrics, "answered 500"},
		"no statistics": {func(s *service) { s.metrics = "backlog_timestamp_seconds 0\n" }, judge.Metrics, "no process has counted the backlog"},
		"no list":       {func(s *service) { s.broken = "/v1/jobs" }, judge.Lists, "jobs of tenant 0"},
		"no reports":    {func(s *service) { s.broken = "/v1/jobs/" }, judge.Reports, "report of job"},
		"half the rows": {func(s *service) { s.exec(`DROP TABLE delivery_attempts CASCADE`) }, judge.Rows, "table delivery_attempts"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			test.miss(s)
			found, v := s.collect()
			require.Contains(t, found.Missing[test.source], test.why)
			require.NotContains(t, fmt.Sprint(found.Missing), "hush")
			require.Empty(t, printed(v))
			for _, invariant := range judge.Invariants {
				require.True(t, v.Checked[invariant.Key] > 0 || v.Skipped[invariant.Key] != "", "%s passed silently", invariant.Key)
			}
		})
	}
}
