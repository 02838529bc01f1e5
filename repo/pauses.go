package repo

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

var (
	insertPause  = statement("insertPause")
	workerAlive  = statement("workerAlive")
	findPause    = statement("findPause")
	listPauses   = statement("listPauses")
	deletePause  = statement("deletePause")
	putJobsAside = statement("putJobsAside")
	jobsAside    = statement("jobsAside")
	resumeJobs   = statement("resumeJobs")
	cleanPauses  = statement("cleanPauses")
)

// pauseColumns is the one column list of a pause, read by scanPause.
const pauseColumns = `pause_id, scope, target, mode, operator, reason, created_at`

func scanPause(row pgx.CollectableRow) (p job.Pause, err error) {
	err = row.Scan(scanID(&p.ID), &p.Scope, &p.Target, &p.Mode, &p.Operator, &p.Reason, &p.CreatedAt)
	return p, err
}

// AddPause stores a pause, which holds for claims in all processes from then on. One of the same scope, target and mode is given
// as it is; added is false then. CodeRequestNotFound: there is no such worker. CodeConflict: there are job.MaxPauses.
func (s *Store) AddPause(ctx context.Context, p job.Pause) (_ job.Pause, added bool, err error) {
	if p.Scope == job.PauseWorker {
		alive, _, err := queryFirst(ctx, s, pgx.RowTo[bool], workerAlive, p.Target)
		switch {
		case err != nil:
			return job.Pause{}, false, err
		case !alive:
			return job.Pause{}, false, job.Errorf(job.CodeRequestNotFound, "No worker with this id is alive.")
		}
	}
	inserted, err := queryRowsAs(ctx, s, "pause", scanPause, insertPause, uuid(p.ID), string(p.Scope), p.Target, string(p.Mode),
		p.Operator, p.Reason, job.MaxPauses)
	if err != nil || len(inserted) > 0 {
		return firstOf(inserted), err == nil, err
	}
	stored, found, err := queryFirst(ctx, s, scanPause, findPause, string(p.Scope), p.Target, string(p.Mode))
	if err == nil && !found {
		err = job.Errorf(job.CodeConflict, "There are %d pauses, and no more may be there: resume some first.", job.MaxPauses)
	}
	return stored, false, err
}

func firstOf(p []job.Pause) (first job.Pause) {
	if len(p) > 0 {
		first = p[0]
	}
	return first
}

// Pauses gives all that hold now, the oldest first.
func (s *Store) Pauses(ctx context.Context) (job.Pauses, error) {
	return queryRows(ctx, s, scanPause, listPauses)
}

// RemovePause ends a pause, and gives it.
func (s *Store) RemovePause(ctx context.Context, id job.ID) (job.Pause, error) {
	removed, err := queryRowsAs(ctx, s, "pause", scanPause, deletePause, uuid(id))
	if err == nil && len(removed) == 0 {
		err = job.Errorf(job.CodeRequestNotFound, "No pause with this id was found.")
	}
	return firstOf(removed), err
}

// aside is a job that was put aside because of a pause.
type aside struct {
	id     job.ID
	mayRun bool // no pause stops it any more
}

func scanAside(row pgx.CollectableRow) (a aside, err error) {
	err = row.Scan(scanID(&a.id), &a.mayRun)
	return a, err
}

// ResumePaused looks at the jobs after the given one that were put aside, at most limit, and makes those due that may go on. It
// answers with their tasks, and with the last job that it looked at; zero when it came to the end.
func (s *Store) ResumePaused(ctx context.Context, after job.ID, limit int) (tasks []job.Task, last job.ID, err error) {
	looked, err := queryRows(ctx, s, scanAside, jobsAside, [16]byte(after), limit)
	if err != nil || len(looked) == 0 {
		return nil, job.ID{}, err
	}
	var free []pgtype.UUID
	for _, a := range looked {
		if a.mayRun {
			free = append(free, uuid(a.id))
		}
	}
	if len(looked) == limit {
		last = looked[limit-1].id
	}
	if len(free) == 0 {
		return nil, last, nil
	}
	tasks, err = queryRowsAs(ctx, s, "resume paused", scanTask, resumeJobs, free)
	return tasks, last, err
}
