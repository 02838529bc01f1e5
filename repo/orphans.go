package repo

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

// orphanWalk is where FailOrphans goes on.
type orphanWalk struct {
	mu sync.Mutex
	at job.EndpointKey
}

// FailOrphans gives up waiting deliveries whose webhook was disabled or deleted,
// at most limit of them, and tells how many. Each call looks at so many
// endpoints with waiting deliveries, from where the call before ended; after the
// last one it begins again.
func (s *Store) FailOrphans(ctx context.Context, look, limit int) (n int, err error) {
	s.orphans.mu.Lock()
	defer s.orphans.mu.Unlock()
	from := s.orphans.at
	type seen struct {
		last   job.EndpointKey
		looked int
		failed int
	}
	found, err := queryRows(ctx, s, func(row pgx.CollectableRow) (f seen, err error) {
		return f, row.Scan(scanID(&f.last.Client), scanID(&f.last.Endpoint), &f.looked, &f.failed)
	}, failOrphans, [16]byte(from.Client), [16]byte(from.Endpoint), look, limit)
	if err != nil {
		return 0, err
	}
	switch last := found[0]; {
	case last.failed == limit: // there may be more of these
	case last.looked == look:
		s.orphans.at = last.last
	default:
		s.orphans.at = job.EndpointKey{}
	}
	return found[0].failed, nil
}

// failOrphans finds the deliveries by the index deliveries_waiting, and skips
// what somebody else has locked: whoever enables the webhook meanwhile, or has
// one of them sent again, prevails.
const failOrphans = walkEndpoints + `, orphans AS MATERIALIZED (
  SELECT d.delivery_id FROM walk CROSS JOIN LATERAL (
    SELECT webhook_id FROM webhooks WHERE webhook_id = walk.endpoint_id AND (deleted_at IS NOT NULL OR disabled_at IS NOT NULL) LIMIT 1) w
  CROSS JOIN LATERAL (
    SELECT delivery_id FROM deliveries WHERE client_id = walk.client_id AND endpoint_id = walk.endpoint_id AND ` + waiting + `
    ORDER BY client_id, endpoint_id, next_attempt_at LIMIT $4) d
  LIMIT $4
), locked AS MATERIALIZED (
  SELECT d.delivery_id, w.deleted_at FROM deliveries d JOIN webhooks w ON w.webhook_id = d.endpoint_id
  WHERE d.delivery_id = ANY (ARRAY(SELECT delivery_id FROM orphans)) AND ` + stillWaiting + `
    AND (w.deleted_at IS NOT NULL OR w.disabled_at IS NOT NULL)
  FOR NO KEY UPDATE OF d SKIP LOCKED FOR SHARE OF w SKIP LOCKED
), failed AS (
  UPDATE deliveries SET state = 'FAILED', next_attempt_at = NULL, settled_at = clock_timestamp(),
    last_error = CASE WHEN l.deleted_at IS NULL THEN '` + string(job.SendDisabled) + `' ELSE '` + string(job.SendDeleted) + `' END
  FROM locked l WHERE deliveries.delivery_id = l.delivery_id
  RETURNING 1
)
SELECT client_id, endpoint_id, n, (SELECT count(*)::int FROM failed) FROM walk ORDER BY n DESC LIMIT 1`
