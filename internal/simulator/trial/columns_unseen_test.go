//go:build slow && linux

package trial

// unseenColumns lists the columns for which the judge cannot detect a change, by reason.
var unseenColumns = []struct {
	why     string
	columns []string
}{
	{"Constraints of the table, or of another column, refuse every other value", []string{
		"deliveries.state", "deliveries.next_attempt_at", "deliveries.last_error", "events.seq", "events.next_state", "jobs.type",
		"jobs.state", "jobs.outcome", "jobs.worker_id", "reports.outcome", "results.size", "results.body", "workers.state",
		"webhooks.content_mode", "maintenance_state.only_row", "headroom.only_row", "history.width",
	}},
	{"No row of the run has a value: nothing is traced, revoked, deleted, disabled or proven, and nothing waits at the end", []string{
		"api_keys.revoked_at", "api_keys.replaced_by", "api_keys.issued_by", "api_keys.made_by", "batches.correlation_id",
		"client_events.webhook_id", "deliveries.claimed_until", "deliveries.traceparent", "jobs.traceparent",
		"outcome_outbox.job_id", "outcome_outbox.attempt", "outcome_outbox.finished_at", "outcome_outbox.published_at",
		"signing_keys.retires_at", "tombstones.job_id", "tombstones.client_id", "tombstones.expired_at",
		"tombstones.state", "tombstones.attempt", "tombstones.run_at", "tombstones.started_at", "tombstones.finished_at",
		"jobs.schedule_id", "jobs.scheduled_for", "webhooks.old_secrets",
		"webhooks.old_secrets_until", "webhooks.deleted_at", "webhooks.disabled_at", "webhooks.disabled_reason",
		"webhooks.failing_since", "webhooks.proven_at", "webhooks.proven_url", "goose_db_version.tstamp",
	}},
	{"Credentials: a wrong value makes the service return 401, and the processes remember valid keys", []string{
		"api_keys.key_id", "api_keys.client_id", "api_keys.secret_hash", "api_keys.created_at", "api_keys.expires_at",
		"api_keys.used_at", "api_keys.scope", "clients.client_id", "clients.created_at",
		"clients.name",
	}},
	{"Stored once and shown unchanged: no other source has the value after the run", []string{
		"batches.created_at", "batches.language", "batches.request_id", "batches.refused", "batches.failures", "deliveries.settled_at",
		"deliveries.last_reason", "delivery_attempts.reason",
		"delivery_attempts.duration_ms", "delivery_attempts.error", "delivery_attempts.response_header",
		"delivery_attempts.response_body", "delivery_attempts.body_truncated", "idempotency_keys.endpoint", "idempotency_keys.key",
		"idempotency_keys.request_hash", "idempotency_keys.state", "idempotency_keys.expires_at", "idempotency_keys.answer_status",
		"idempotency_keys.answer_header", "idempotency_keys.answer_body", "jobs.assigned_at", "jobs.language", "jobs.request_id",
		"reports.worker_id", "reports.failure_retry_after", "reports.failure_detail", "results.media_type", "results.expires_at",
		"webhooks.webhook_id", "webhooks.url", "webhooks.events", "webhooks.description", "webhooks.created_at", "webhooks.updated_at",
		"history.at", "history.submitted", "history.succeeded", "history.failed", "history.canceled", "history.retried",
		"history.wait_ms_p50", "history.wait_ms_p99", "history.run_ms_p50", "history.run_ms_p99",
	}},
	{"Sort keys: any value that keeps the order is valid", []string{
		"client_events.event_id", "client_events.tx", "events.tx",
	}},
	{"State of work in progress, which ends with the run", []string{
		"headroom.active", "headroom.queued", "headroom.reported_active", "headroom.reported_queued",
		"headroom_leases.lease_id", "headroom_leases.process_id", "headroom_leases.active", "headroom_leases.queued",
		"headroom_leases.expires_at", "deliveries.resent_at", "deliveries.dispatch", "events.called_back", "jobs.dispatch", "jobs.run_at",
		"maintenance_state.leader_id", "maintenance_state.leader_expires_at", "maintenance_state.cursor_key",
		"webhooks.consecutive_failures", "workers.worker_id", "workers.name", "workers.concurrency",
		"workers.started_at", "workers.heartbeat_at", "workers.expires_at",
		"goose_db_version.id", "goose_db_version.version_id", "goose_db_version.is_applied",
	}},
	{"Secrets and signing keys: receivers checked with them during the run", []string{
		"signing_keys.kid", "signing_keys.public_key", "signing_keys.private_key", "signing_keys.created_at",
		"signing_keys.signs_from", "webhooks.secret",
	}},
}

// emptyTables have no rows after the run, because the run uses no operators, test beds or schedules.
var emptyTables = []string{
	"audit", "bulk_items", "bulk_operations", "ended_sessions", "erasures", "pauses", "schedules", "testbed_clock", "testbed_exchanges",
	"testbed_faults", "testbed_requests", "testbed_sessions",
}
