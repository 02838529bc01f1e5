package repo

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Waiting finds at most limit waiting jobs after the given place whose time
// comes within ahead, in order of their time; with a negative ahead those whose
// time came so long ago.
func (s *Store) Waiting(ctx context.Context, after job.QueueCursor, ahead time.Duration, limit int) ([]job.Task, error) {
	return queryRows(ctx, s, scanTask, waitingJobs, after.RunAt, [16]byte(after.JobID), ahead, limit)
}

// waitingJobs walks the index jobs_waiting from the place to the end of the
// time, and reads no job that it does not give.
const waitingJobs = `
SELECT ` + taskColumns + ` FROM jobs
WHERE worker_id IS NULL AND finished_at IS NULL AND (run_at, job_id) > ($1, $2) AND run_at <= now() + $3::interval
ORDER BY run_at, job_id LIMIT $4`

// Redispatch raises the dispatch count of tasks whose name is spent, and
// answers with the tasks to enqueue instead. A job that went on meanwhile has
// none.
func (s *Store) Redispatch(ctx context.Context, tasks []job.Task) ([]job.Task, error) {
	ids, attempts, dispatches := taskArrays(tasks)
	return queryRows(ctx, s, scanTask, redispatchJobs, ids, attempts, dispatches)
}

// redispatchJobs finds the jobs by primary key: the guard is on their state,
// because one that names the columns of the index jobs_waiting can lead the
// planner to walk that index instead. Touches no indexed column. dispatch_epoch
// tells in which epoch the job's task was lost last.
const redispatchJobs = `
WITH waiting AS MATERIALIZED (
  SELECT j.job_id FROM jobs j JOIN unnest($1::uuid[], $2::int[], $3::int[]) AS t(id, attempt, dispatch) ON j.job_id = t.id
  WHERE j.attempt = t.attempt AND j.dispatch = t.dispatch AND j.state IN ('CREATED', 'QUEUED')
  ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED
)
UPDATE jobs SET dispatch = dispatch + 1, dispatch_epoch = (SELECT epoch FROM maintenance_state) FROM waiting w WHERE jobs.job_id = w.job_id
RETURNING ` + taskColumns
