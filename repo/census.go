package repo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// Census counts what there is to do and who is there to do it, in one moment.
// It looks at no more than limit rows of each kind, and locks nothing. Of more
// jobs that wait than that, too few are counted as QUEUED. The oldest delivery is
// the oldest one of the first 10,000 endpoints that have any.
func (s *Store) Backlog(ctx context.Context, limit int) (job.Backlog, error) {
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (c job.Backlog, err error) {
		var created, waiting, assigned, running int
		err = row.Scan(&created, &waiting, &assigned, &running, &c.OldestDue, &c.Epoch, &c.Workers, &c.Slots,
			&c.Deliveries, &c.OldestDelivery, &c.DisabledWebhooks)
		c.Jobs = map[job.State]int{job.Created: created, job.Queued: max(0, waiting-created), job.Assigned: assigned, job.Running: running}
		return c, err
	}, takeCensus, [16]byte{}, [16]byte{}, maxLookedEndpoints, limit)
	if err != nil {
		return job.Backlog{}, err
	}
	return found[0], nil
}

// takeCensus counts jobs by the indexes jobs_scheduled, jobs_waiting and
// jobs_held, deliveries by deliveries_waiting and deliveries_claimed, and
// webhooks by webhooks_client. Of what there may be a million of, the index alone
// is read, in no order: the predicates say all that is asked. What waits and is
// not CREATED is QUEUED.
const takeCensus = walkEndpoints + `
SELECT created.n, waiting.n, held.assigned, held.running,
  coalesce((SELECT now() - run_at FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL AND run_at <= now() ORDER BY run_at, job_id LIMIT 1), '0'),
  (SELECT epoch FROM maintenance_state), alive.n, alive.slots,
  least(unsent.n + sending.n, $4), coalesce((SELECT now() - min(next_attempt_at) FROM walk WHERE next_attempt_at <= now()), '0'), hooks.disabled
FROM
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE queued_at IS NULL AND finished_at IS NULL LIMIT $4) j) created,
  (SELECT count(*) AS n FROM (SELECT FROM jobs WHERE worker_id IS NULL AND finished_at IS NULL LIMIT $4) j) waiting,
  (SELECT count(*) FILTER (WHERE state = 'ASSIGNED') AS assigned, count(*) FILTER (WHERE state = 'RUNNING') AS running
    FROM (SELECT state FROM jobs WHERE worker_id IS NOT NULL ORDER BY worker_id LIMIT $4) j) held,
  (SELECT count(*) AS n, coalesce(sum(concurrency), 0) AS slots FROM workers WHERE state = 'ALIVE' AND expires_at > now()) alive,
  (SELECT count(*) AS n FROM (SELECT FROM deliveries WHERE ` + waiting + ` LIMIT $4) d) unsent,
  (SELECT count(*) AS n FROM (SELECT FROM deliveries WHERE claimed_until IS NOT NULL ORDER BY claimed_until LIMIT $4) d) sending,
  (SELECT count(*) FILTER (WHERE disabled_reason <> 'OWNER') AS disabled
    FROM (SELECT disabled_reason FROM webhooks WHERE deleted_at IS NULL ORDER BY client_id, webhook_id LIMIT $4) w) hooks`
