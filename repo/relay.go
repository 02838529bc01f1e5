package repo

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// settled is how long after its time a waiting job is dispatched even if it
// changed just now: nobody else is about to do it.
const settled = 10 * time.Second

// Undispatched finds at most limit waiting jobs after the given place that are
// due within the horizon, are not stamped with the epoch and have not changed
// for minAge (whoever changed them is about to enqueue them), in order of
// their time.
func (s *Store) Undispatched(ctx context.Context, epoch int64, after job.Place, horizon, minAge time.Duration, limit int) ([]job.Task, error) {
	return queryRows(ctx, s, scanTask, undispatched, epoch, after.RunAt, [16]byte(after.JobID), horizon, minAge, settled, limit)
}

// undispatched walks the index jobs_waiting from the place to the horizon.
const undispatched = `
SELECT ` + taskColumns + ` FROM jobs
WHERE worker_id IS NULL AND finished_at IS NULL AND (run_at, job_id) > ($2, $3) AND run_at <= now() + $4::interval
  AND dispatch_epoch IS DISTINCT FROM $1 AND (updated_at <= now() - $5::interval OR run_at <= now() - $6::interval)
ORDER BY run_at, job_id LIMIT $7`

// Stamp notes that the tasks are in the queue under the epoch, which the
// caller read before it enqueued them. A job that went on meanwhile is left
// alone, and so is one that somebody has locked.
func (s *Store) Stamp(ctx context.Context, epoch int64, tasks []job.Task) error {
	ids, attempts, dispatches := taskArrays(tasks)
	return s.exec(ctx, "stamp", stampJobs, epoch, ids, attempts, dispatches)
}

// stampJobs finds the jobs by primary key: the guard is on their state, because
// one that names the columns of the index jobs_waiting can lead the planner to
// walk that index instead. Touches no indexed column.
const stampJobs = `
WITH waiting AS MATERIALIZED (
  SELECT j.job_id FROM jobs j JOIN unnest($2::uuid[], $3::int[], $4::int[]) AS t(id, attempt, dispatch) ON j.job_id = t.id
  WHERE j.attempt = t.attempt AND j.dispatch = t.dispatch AND j.state IN ('CREATED', 'QUEUED')
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET dispatch_epoch = $1 FROM waiting w WHERE jobs.job_id = w.job_id`

// Redispatch raises the dispatch count of tasks whose name is spent, and
// answers with the tasks to enqueue instead. A job that went on meanwhile has
// none.
func (s *Store) Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error) {
	ids, attempts, dispatches := taskArrays(tasks)
	return queryRows(ctx, s, scanTask, redispatchJobs, ids, attempts, dispatches)
}

// redispatchJobs finds the jobs as stampJobs does; touches no indexed column.
const redispatchJobs = `
WITH waiting AS MATERIALIZED (
  SELECT j.job_id FROM jobs j JOIN unnest($1::uuid[], $2::int[], $3::int[]) AS t(id, attempt, dispatch) ON j.job_id = t.id
  WHERE j.attempt = t.attempt AND j.dispatch = t.dispatch AND j.state IN ('CREATED', 'QUEUED')
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET dispatch = dispatch + 1, dispatch_epoch = NULL FROM waiting w WHERE jobs.job_id = w.job_id
RETURNING ` + taskColumns

// Overdue finds at most limit stamped jobs after the given place that have
// been due for longer than age: their tasks may have been lost.
func (s *Store) Overdue(ctx context.Context, epoch int64, after job.Place, age time.Duration, limit int) ([]job.Task, error) {
	return queryRows(ctx, s, scanTask, overdue, epoch, after.RunAt, [16]byte(after.JobID), age, limit)
}

// overdue walks the index jobs_waiting from the place to the given age.
const overdue = `
SELECT ` + taskColumns + ` FROM jobs
WHERE worker_id IS NULL AND finished_at IS NULL AND (run_at, job_id) > ($2, $3) AND run_at <= now() - $4::interval
  AND dispatch_epoch = $1
ORDER BY run_at, job_id LIMIT $5`
