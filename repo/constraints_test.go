package repo_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// broken is a change to a sound job that a named CHECK of the schema refuses.
var broken = []struct {
	constraint string
	state      job.State // of the job before the change
	set        string
}{
	{"jobs_type_known", job.Queued, `type = 'DREAM', execution_at = NULL`},
	{"jobs_state_known", job.Queued, `state = 'DREAMING'`},
	{"jobs_event_seq_positive", job.Queued, `event_seq = 0`},
	{"jobs_final_has_outcome", job.Queued, `outcome = 'SUCCESS', finished_at = now()`},
	{"jobs_final_has_outcome", job.Succeeded, `outcome = 'FAILED'`},
	{"jobs_final_has_outcome", job.Succeeded, `outcome = NULL, finished_at = NULL`},
	{"jobs_final_has_finish", job.Succeeded, `finished_at = NULL`},
	{"jobs_final_has_finish", job.Running, `finished_at = now()`},
	{"jobs_held_has_worker", job.Assigned, `worker_id = NULL`},
	{"jobs_held_has_worker", job.Running, `worker_id = NULL`},
	{"jobs_held_has_worker", job.Queued, `worker_id = gen_random_uuid()`},
	{"jobs_held_has_worker", job.Canceled, `worker_id = gen_random_uuid()`},
	{"jobs_created_not_queued", job.Created, `queued_at = now()`},
	{"jobs_created_not_queued", job.Queued, `queued_at = NULL`},
	{"jobs_created_not_queued", job.Failed, `queued_at = NULL`},
	{"jobs_run_has_start", job.Running, `started_at = NULL`},
	{"jobs_run_has_start", job.Failed, `started_at = NULL`},
	{"jobs_failed_has_failure", job.Failed, `failure_code = NULL`},
	{"jobs_failed_has_failure", job.Succeeded, `failure_code = 'RFA_INTERNAL'`},
	{"jobs_failed_has_failure", job.Queued, `failure_code = 'RFA_INTERNAL'`},
	{"jobs_created_has_execution_at", job.Created, `execution_at = NULL, type = 'EXECUTE'`},
	{"jobs_deferred_has_execution_at", job.Queued, `type = 'EXECUTE'`},
	{"jobs_deferred_has_execution_at", job.Queued, `execution_at = NULL`},
	{"jobs_never_early", job.Queued, `run_at = execution_at - interval '1 microsecond'`},
	{"jobs_never_early", job.Running, `started_at = execution_at - interval '1 microsecond'`},
	{"jobs_attempt_in_range", job.Queued, `attempt = 0`},
	{"jobs_attempt_in_range", job.Queued, `attempt = max_attempts + 1`},
}

// brokenElsewhere are statements that the CHECKs of other tables refuse.
var brokenElsewhere = map[string]string{
	"bulk_operations_action_known":    bulk(`'burn', 1, 0, 0, NULL, NULL, false`),
	"bulk_operations_rate_in_range":   bulk(`'retry', 0, 0, 0, NULL, NULL, false`),
	"bulk_operations_counted":         bulk(`'retry', 1, 0, 1, NULL, NULL, false`),
	"bulk_operations_ends_once":       bulk(`'retry', 1, 0, 0, NULL, NULL, true`),
	"bulk_operations_done_completely": bulk(`'retry', 1, 1, 0, now(), now(), false`),
	"bulk_items_result_known":         bulkItem(`'LOST', now()`),
	"bulk_items_result_complete":      bulkItem(`'PENDING', now()`),
	"schedules_interval_in_range":     schedule(`NULL, 999, 0, 'allow', 'none', 1, true, NULL, NULL, false`),
	"schedules_jitter_in_range":       schedule(`'x', NULL, -1, 'allow', 'none', 1, true, NULL, NULL, false`),
	"schedules_overlap_known":         schedule(`'x', NULL, 0, 'kiss', 'none', 1, true, NULL, NULL, false`),
	"schedules_catch_up_known":        schedule(`'x', NULL, 0, 'allow', 'some', 1, true, NULL, NULL, false`),
	"schedules_catch_up_in_range":     schedule(`'x', NULL, 0, 'allow', 'all', 1001, true, NULL, NULL, false`),
	"schedules_one_timetable":         schedule(`'x', 1000, 0, 'allow', 'all', 1, true, NULL, NULL, false`),
	"schedules_paused_rests":          schedule(`'x', NULL, 0, 'allow', 'all', 1, true, now(), NULL, false`),
	"schedules_active_is_looked_at":   schedule(`'x', NULL, 0, 'allow', 'all', 1, false, now(), NULL, false`),
	"schedules_retries_due_time":      schedule(`'x', NULL, 0, 'allow', 'all', 1, false, NULL, NULL, true`),
	"erasures_done_with_proof":        erasure(`now(), now(), NULL, NULL`),
	"erasures_hash_is_sha256":         erasure(`now(), now(), '{}', '\x00'`),
	"erasures_done_was_begun":         erasure(`NULL, now(), '{}', sha256('')`),
	"pauses_scope_known":              pause(`'MOON', 'x', 'PAUSE'`),
	"pauses_mode_known":               pause(`'WORKER', 'x', 'PAUSE'`),
	"pauses_target_named":             pause(`'ALL', 'x', 'PAUSE'`),
	"testbed_clock_rate": `INSERT INTO testbed_clock (number, real_at, service_at, rate, frozen)
		VALUES (1, now(), now(), 3601, false)`,
	"testbed_sessions_end_after_beginning": `INSERT INTO testbed_sessions (session_id, client_id, profile, seed, rules, created_at, ended_at)
		VALUES (gen_random_uuid(), gen_random_uuid(), '', 1, '{}', now(), now() - interval '1 s')`,
	"testbed_faults_counted": `INSERT INTO testbed_faults (client_id, position, rule_id, rule, seed, applied)
		VALUES (gen_random_uuid(), 1, gen_random_uuid(), '{}', 1, 1)`,
	"history_width_known": `INSERT INTO history (width, at, submitted, succeeded, failed, canceled, retried)
		VALUES (11, now(), 0, 0, 0, 0, 0)`,
	"api_keys_hash_is_sha256": `INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at) VALUES ('k', gen_random_uuid(),
		'\x00', now(), now())`,
	"api_keys_scope_known": `INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at, scope)
		VALUES ('k', gen_random_uuid(), sha256(''), now(), now(), 'some')`,
	"api_keys_issue_known": `INSERT INTO api_keys (key_id, client_id, secret_hash, created_at, expires_at, issued_by)
		VALUES ('k', gen_random_uuid(), sha256(''), now(), now(), 'FOUND')`,
	"idempotency_keys_stand_for_something": `INSERT INTO idempotency_keys (client_id, endpoint, key, request_hash, created_at, expires_at)
		VALUES (gen_random_uuid(), 'client', 'k', '', now(), now())`,
	"workers_state_known": `UPDATE workers SET state = 'TIRED'`,
	"events_seq_positive": `INSERT INTO events (job_id, client_id, seq, event_id, event_name, attempt, occurred_at, data)
		VALUES (gen_random_uuid(), gen_random_uuid(), 0, gen_random_uuid(), 'x', 1, now(), '{}')`,
	"reports_outcome_known":      report(`'MAYBE', now(), 0, NULL`),
	"reports_duration_positive":  report(`'SUCCESS', now(), -1, NULL`),
	"reports_run_has_start":      report(`'SUCCESS', NULL, 0, NULL`),
	"reports_failed_has_failure": report(`'FAILED', now(), 0, NULL`),
	"results_sha256_length":      result(`3, '\x00', 'abc'`),
	"results_complete":           result(`4, sha256('abc'), 'abc'`),
	"batches_status_known":       batch(`'MAYBE', now(), 0, 0, 0, '[]'`),
	"batches_outcome_complete":   batch(`'FAILED', now(), 0, 1, 0, NULL`),
	"maintenance_state_one_row":  `INSERT INTO maintenance_state (only_row) VALUES (false)`,

	"webhooks_events_given":          webhook(`'{}', 'binary', '{}', '{}', NULL, NULL, 0, NULL`),
	"webhooks_content_mode_known":    webhook(`'{*}', 'smoke', '{}', '{}', NULL, NULL, 0, NULL`),
	"webhooks_disabled_reason_known": webhook(`'{*}', 'binary', '{}', '{}', now(), 'MOOD', 0, NULL`),
	"webhooks_disabled_has_reason":   webhook(`'{*}', 'binary', '{}', '{}', now(), NULL, 0, NULL`),
	"webhooks_old_secrets_end":       webhook(`'{*}', 'binary', '{x}', '{}', NULL, NULL, 0, NULL`),
	"webhooks_failing_since":         webhook(`'{*}', 'binary', '{}', '{}', NULL, NULL, 1, NULL`),
	"deliveries_state_known":         delivery(`NULL, 'x', 'LOST', NULL, NULL, now(), NULL`),
	"deliveries_one_target":          delivery(`NULL, NULL, 'PENDING', now(), NULL, NULL, NULL`),
	"deliveries_pending_has_time":    delivery(`NULL, 'x', 'PENDING', NULL, NULL, NULL, NULL`),
	"deliveries_settled_has_time":    delivery(`NULL, 'x', 'DELIVERED', NULL, NULL, NULL, NULL`),
	"deliveries_claimed_pending":     delivery(`NULL, 'x', 'DELIVERED', NULL, now(), now(), NULL`),
	"deliveries_delivered_no_error":  delivery(`NULL, 'x', 'DELIVERED', NULL, NULL, now(), 'TIMEOUT'`),
	"deliveries_failed_has_error":    delivery(`NULL, 'x', 'FAILED', NULL, NULL, now(), NULL`),
	"signing_keys_ed25519":           `INSERT INTO signing_keys (kid, public_key, created_at, signs_from) VALUES ('k', 'short', now(), now())`,
}

func webhook(values string) string {
	return `INSERT INTO webhooks (webhook_id, client_id, url, description, secret, created_at, updated_at,
			events, content_mode, old_secrets, old_secrets_until, disabled_at, disabled_reason, consecutive_failures, failing_since)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'u', '', 'x', now(), now(), ` + values + `)`
}

func delivery(values string) string {
	return `INSERT INTO deliveries (delivery_id, client_id, endpoint_id, seq, event_id, event_name, created_at,
			webhook_id, url, state, next_attempt_at, claimed_until, settled_at, last_error)
		VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 0, gen_random_uuid(), 'x', now(), ` + values + `)`
}

func report(values string) string {
	return `INSERT INTO reports (job_id, attempt, finished_at, event_seq, outcome, started_at, duration_ms, failure_code)
		VALUES (gen_random_uuid(), 1, now(), 1, ` + values + `)`
}

func batch(values string) string {
	return `INSERT INTO batches (batch_id, client_id, created_at, language, request_id, items, refused, status, completed_at, succeeded,
		failed, canceled, failures)
		VALUES (gen_random_uuid(), gen_random_uuid(), now(), 'en', 'r-1', '[]', 0, ` + values + `)`
}

func bulk(values string) string {
	return `INSERT INTO bulk_operations (bulk_id, operator, filter, override, request_id, action, rate, total, succeeded, gathered_at,
		finished_at, aborted) VALUES (gen_random_uuid(), 'ann', '{}', false, 'r', ` + values + `)`
}

func schedule(values string) string {
	return `INSERT INTO schedules (schedule_id, client_id, name, time_zone, job, language, request_id, created_at, updated_at,
		cron, interval_ms, jitter_ms, overlap, catch_up, catch_up_max, paused, due_at, look_at, retrying)
		VALUES (gen_random_uuid(), gen_random_uuid(), '', '', '{}', 'en', 'r', now(), now(), ` + values + `)`
}

func erasure(values string) string {
	return `INSERT INTO erasures (erasure_id, client_id, operator, reason, request_id, started_at, finished_at, record, record_sha256)
		VALUES (gen_random_uuid(), gen_random_uuid(), 'ann', '', 'r', ` + values + `)`
}

func bulkItem(values string) string {
	return `INSERT INTO bulk_items (bulk_id, job_id, client_id, attempt, event_seq, result, ended_at)
		VALUES (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 1, ` + values + `)`
}

func result(values string) string {
	return `INSERT INTO results (job_id, attempt, media_type, expires_at, size, sha256, body) VALUES (gen_random_uuid(), 1, 'text/plain',
		now(), ` + values + `)`
}

func TestSchemaRefusesBrokenRows(t *testing.T) {
	t.Parallel()
	f := setup(t)
	tested := []string{"events_transition_allowed"} // by TestSchemaKnowsTheTable
	for _, b := range broken {
		_, err := f.db.Exec(f.ctx(), `UPDATE jobs SET `+b.set+` WHERE job_id = $1`, f.force(b.state).String())
		require.Error(t, err, "%s: %s of a job that is %s", b.constraint, b.set, b.state)
		requireBroken(t, b.constraint, err)
		tested = append(tested, b.constraint)
	}
	for constraint, sql := range brokenElsewhere {
		_, err := f.db.Exec(f.ctx(), sql)
		require.Error(t, err, constraint)
		requireBroken(t, constraint, err)
		tested = append(tested, constraint)
	}

	rows, err := f.db.Query(f.ctx(), `SELECT conname FROM pg_constraint
		WHERE contype = 'c' AND connamespace = 'public'::regnamespace AND conrelid <> 'goose_db_version'::regclass`)
	require.NoError(t, err)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	slices.Sort(tested)
	require.ElementsMatch(t, names, slices.Compact(tested), "each CHECK has a row that breaks it")
}

// pause gives a statement that stores a pause with these values of scope, target and mode.
func pause(values string) string {
	return `INSERT INTO pauses (pause_id, operator, reason, scope, target, mode) VALUES (gen_random_uuid(), 'ann', 'r', ` + values + `)`
}
