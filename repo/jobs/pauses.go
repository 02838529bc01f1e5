package jobs

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

var scanPause = pgx.RowToStructByName[job.Pause]

// AddPause stores a pause, which applies to all later claims in all processes. If a pause with the same scope, target and mode exists,
// it returns that pause, and `added` is false. AddPause returns CodeRequestNotFound if the worker is not alive, and CodeConflict if
// there are already job.MaxPauses pauses.
func (s *Store) AddPause(ctx context.Context, p job.Pause) (_ job.Pause, added bool, err error) {
	if p.Scope == job.PauseWorker {
		alive, err := pg.QueryValue[bool](ctx, s.db, statement("workerAlive"), p.Target)
		switch {
		case err != nil:
			return job.Pause{}, false, err
		case !alive:
			return job.Pause{}, false, job.Errorf(job.CodeRequestNotFound, "No worker with this id is alive.")
		}
	}
	stored, added, err := pg.First(pg.QueryAs(ctx, s.db, "pause", scanPause, statement("insertPause"),
		pg.UUID(p.ID), string(p.Scope), p.Target, string(p.Mode), p.Operator, p.Reason, job.MaxPauses))
	if err != nil || added {
		return stored, added, err
	}
	many := job.Errorf(job.CodeConflict, "There are %d pauses, which is the maximum. Resume some first.", job.MaxPauses)
	stored, err = pg.QueryOne(ctx, s.db, many, scanPause, statement("findPause"), string(p.Scope), p.Target, string(p.Mode))
	return stored, false, err
}

// Pauses returns all current pauses, the oldest first.
func (s *Store) Pauses(ctx context.Context) (job.Pauses, error) {
	return pg.Query(ctx, s.db, scanPause, statement("listPauses"))
}

// RemovePause ends a pause, and returns it.
func (s *Store) RemovePause(ctx context.Context, id job.ID) (job.Pause, error) {
	removed, found, err := pg.First(pg.QueryAs(ctx, s.db, "pause", scanPause, statement("deletePause"), pg.UUID(id)))
	if err == nil && !found {
		err = job.Errorf(job.CodeRequestNotFound, "No pause with this id was found.")
	}
	return removed, err
}

// ResumePaused reads at most `limit` jobs that a pause stopped, with ids above `after`. It makes a job due if no pause stops it any more.
// It returns the tasks of the jobs that it made due. `last` is the last job that it read, zero at the end.
func (s *Store) ResumePaused(ctx context.Context, after job.ID, limit int) (tasks []job.Task, last job.ID, err error) {
	type parkedJob struct {
		ID     job.ID
		MayRun bool
	}
	looked, err := pg.Query(ctx, s.db, pgx.RowToStructByPos[parkedJob], statement("parkedJobs"), [16]byte(after), limit)
	if err != nil || len(looked) == 0 {
		return nil, job.ID{}, err
	}
	var free []pgtype.UUID
	for _, a := range looked {
		if a.MayRun {
			free = append(free, pg.UUID(a.ID))
		}
	}
	if len(looked) == limit {
		last = looked[limit-1].ID
	}
	if len(free) == 0 {
		return nil, last, nil
	}
	tasks, err = pg.QueryAs(ctx, s.db, "resume paused", scanTask, statement("resumeJobs"), free)
	return tasks, last, err
}
