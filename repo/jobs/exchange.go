package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

const stepBatcher = "steps"

var (
	claimStep  = pg.Operation{Name: "claim", Span: telemetry.SpanCommit + "claim"}
	startStep  = pg.Operation{Name: "start", Span: telemetry.SpanCommit + "start"}
	finishStep = pg.Operation{Name: "finish", Span: telemetry.SpanCommit + "finish"}
)

// step is a claim, a start or a finish of a job; exactly one of the three is set. Steps that wait at the same moment share a flush.
type step struct {
	operation pg.Operation
	job       job.ID
	claim     *claimRequest
	start     *job.ClaimID
	finish    *job.Finish
}

type stepAnswer struct {
	claim    *job.Claim     // nil if the job was not claimed
	not      job.NotClaimed // why the job was not claimed
	started  time.Time
	finished job.Finished
	// `locked` is true if another session has locked the row, so that nothing was written.
	locked bool
}

func stepBytes(st step) int {
	switch {
	case st.finish == nil:
		return 0
	case st.finish.Result == nil:
		return 512
	}
	return len(st.finish.Result.Body) + 512
}

// A step with a locked row is flushed again after a wait that grows from minLockedWait to maxLockedWait.
const (
	minLockedWait = 2 * time.Millisecond
	maxLockedWait = 50 * time.Millisecond
)

// A resumed job was throttled before and is due again. A flush counts resumed jobs only among the resumeLook oldest due jobs. For each
// resumed job that the flush misses, it resumes one job too many, which is then throttled again.
const resumeLook = 1000

// createdWait is how long a worker waits before it tries again to claim a due CREATED job that a limit or a pause stops. A CREATED job
// keeps its due time and its task. In contrast, a QUEUED job that is stopped gets a due time that never comes. As soon as this job may
// run, it gets a new task.
const createdWait = time.Second

// errLocked is the error of a step if its row is locked for longer than the statement timeout. Nothing was written.
var errLocked = fmt.Errorf("the row is locked by another session: %w", context.DeadlineExceeded)

// step does one step in a flush that it may share with other steps. If another session has locked the row, step retries up to the statement
// timeout. It waits outside of any transaction, so other callers do not have to wait, too.
func (s *Store) step(ctx context.Context, st step) (stepAnswer, error) {
	done, err := s.steps.Do(ctx, st)
	if err != nil || !done.locked {
		return done, err
	}
	until := time.Now().Add(s.db.Timeout)
	for wait := minLockedWait; ; wait = min(2*wait, maxLockedWait) {
		left := time.Until(until)
		if left <= 0 {
			return stepAnswer{}, s.db.Failed(st.operation.Name, errLocked)
		}
		select {
		case <-time.After(min(wait, left)):
		case <-ctx.Done():
			return stepAnswer{}, pg.Translate(ctx.Err())
		}
		if done, err = s.steps.Do(ctx, st); err != nil || !done.locked {
			return done, err
		}
	}
}

// writeSteps writes steps in one transaction. It sends one statement or, with a limit of jobs per client, up to three in one round trip.
// The statements of a round trip form one implicit transaction, so a failed statement undoes the others.
func (s *Store) writeSteps(ctx context.Context, db pg.Conn, steps []step) ([]pg.Answer[stepAnswer], error) {
	var done map[job.ID]*stepRow
	var resumed []job.Task
	queries, err := s.stepQueries(steps, &done, &resumed)
	if err == nil {
		err = send(ctx, db, queries)
	}
	if err != nil {
		return nil, err
	}
	answers := make([]pg.Answer[stepAnswer], len(steps))
	var left []int
	for i, st := range steps {
		a, row := &answers[i].Value, done[st.job]
		switch {
		case row == nil:
			left = append(left, i)
		case st.claim != nil:
			a.claim = row.claim
		case st.start != nil:
			a.started = row.at
		default:
			a.finished = row.finished(st.finish)
			a.finished.Resumed, resumed = resumed, nil
		}
	}
	if len(left) > 0 {
		s.explain(ctx, steps, answers, left)
	}
	return answers, nil
}

func (s *Store) stepQueries(steps []step, done *map[job.ID]*stepRow, resumed *[]job.Task) ([]query, error) {
	arguments, err := s.stepArguments(steps)
	if err != nil {
		return nil, err
	}
	most := s.maxHeld
	if most == 0 {
		return []query{{statement("step"), arguments, into(done, collectSteps)}}, nil
	}
	queries := make([]query, 0, 3)
	if slices.ContainsFunc(steps, func(st step) bool { return st.claim != nil }) {
		queries = append(queries,
			query{statement("lockClaims"), nil, func(rows pgx.Rows) error { rows.Close(); return rows.Err() }},
			query{statement("stepWithin"), append(arguments, most), into(done, collectSteps)})
	} else {
		queries = append(queries, query{statement("step"), arguments, into(done, collectSteps)})
	}
	if slices.ContainsFunc(steps, func(st step) bool { return st.finish != nil }) {
		collect := func(rows pgx.Rows) ([]job.Task, error) { return pgx.CollectRows(rows, scanTask) }
		queries = append(queries, query{statement("resumeThrottled"), []any{most, resumeLook, pg.MaxFlushItems}, into(resumed, collect)})
	}
	return queries, nil
}

type query struct {
	sql       string
	arguments []any
	collect   func(pgx.Rows) error
}

func into[T any](found *T, collect func(pgx.Rows) (T, error)) func(pgx.Rows) error {
	return func(rows pgx.Rows) (err error) {
		*found, err = collect(rows)
		return err
	}
}

// send sends statements together, as one transaction. Their results are valid only if send returns no error, because the commit comes last.
func send(ctx context.Context, db pg.Conn, queries []query) error {
	if len(queries) == 1 {
		rows, err := db.Query(ctx, queries[0].sql, queries[0].arguments...)
		if err != nil {
			return err
		}
		return queries[0].collect(rows)
	}
	var batch pgx.Batch
	for _, q := range queries {
		batch.Queue(q.sql, q.arguments...).Query(q.collect)
	}
	return db.SendBatch(ctx, &batch).Close()
}

// explain sets the answers of steps for which stepJobs returned no row. There are three reasons: an earlier call did the step and its
// answer was lost, the step's conditions did not hold, or the row was locked. If the conditions hold now, explain reports the row as
// locked, and the step is tried again. If explain fails, the other steps of the flush stay committed.
func (s *Store) explain(ctx context.Context, steps []step, answers []pg.Answer[stepAnswer], left []int) {
	ids, workers := make([]pgtype.UUID, len(left)), make([]pgtype.UUID, len(left))
	var claims []claimRequest
	for i, n := range left {
		ids[i] = pg.UUID(steps[n].job)
		if c := steps[n].claim; c != nil {
			workers[i] = pg.UUID(c.worker)
			claims = append(claims, *c)
		}
	}
	var found map[job.ID]guarded
	var before map[job.ID]*job.Claim
	queries := []query{{statement("whyUnchanged"), []any{ids, workers}, into(&found, collectGuarded)}}
	if len(claims) > 0 {
		queries = append(queries, query{statement("claimedBefore"), []any{
			pg.Column(claims, func(r claimRequest) pgtype.UUID { return pg.UUID(r.job) }),
			pg.Column(claims, func(r claimRequest) int { return r.attempt }),
			pg.Column(claims, func(r claimRequest) pgtype.UUID { return pg.UUID(r.worker) }),
		}, into(&before, collectClaims)})
	}
	err := send(ctx, s.db.Pool, queries)
	if err == nil {
		err = s.parkPaused(ctx, found)
	}
	for _, n := range left {
		st, a := steps[n], &answers[n]
		*a = pg.Answer[stepAnswer]{}
		row, known := found[st.job]
		switch {
		case err != nil:
			a.Err = s.db.Failed(st.operation.Name, err)
		case st.claim != nil:
			a.Value = row.unclaimed(*st.claim, known, before[st.job])
			if a.Value.locked && row.state == job.Created && s.maxHeld > 0 { // the client may be at the limit
				a.Value = stepAnswer{not: job.NotClaimed{StillWaiting: true, Wait: createdWait}}
			}
		case st.start != nil && row.started(*st.start):
			a.Value.started = *row.startedAt
		case st.start != nil && row.holds(job.Assigned, *st.start) && row.alive,
			st.finish != nil && row.holds(job.Running, st.finish.ClaimID):
			a.Value.locked = true
		default:
			a.Err = job.ErrStale
		}
	}
}

// parkPaused parks the jobs that a pause of their kind or client stops: they get a due time that never comes.
func (s *Store) parkPaused(ctx context.Context, found map[job.ID]guarded) error {
	var paused []pgtype.UUID
	for id, g := range found {
		if g.paused && g.state == job.Queued && g.wait == 0 {
			paused = append(paused, pg.UUID(id))
		}
	}
	if len(paused) == 0 {
		return nil
	}
	_, err := s.db.Pool.Exec(ctx, statement("parkJobs"), paused)
	return err
}

type guarded struct {
	state     job.State
	attempt   int
	fence     int64
	startedAt *time.Time
	wait      time.Duration // time until the job is due
	throttled bool          // see job.ThrottledUntil
	parked    bool          // see job.PausedUntil
	paused    bool          // stopped by a pause of its kind or client
	stopped   bool          // stopped by a pause of everything, or of the worker
	alive     bool
}

func collectGuarded(rows pgx.Rows) (map[job.ID]guarded, error) {
	return pg.CollectByID(rows, nil, func(g *guarded) []any {
		return []any{&g.state, &g.attempt, &g.fence, &g.startedAt, &g.wait, &g.throttled, &g.parked, &g.paused, &g.stopped, &g.alive}
	})
}

func (g guarded) holds(state job.State, c job.ClaimID) bool {
	return g.state == state && g.attempt == c.Attempt && g.fence == c.Fence
}

// started reports whether an earlier start of the claim succeeded and its answer was lost. Only the claim's worker knows the fence, so this
// worker made the earlier start.
func (g guarded) started(c job.ClaimID) bool { return g.holds(job.Running, c) && g.startedAt != nil }

func (g guarded) unclaimed(r claimRequest, known bool, before *job.Claim) stepAnswer {
	waits := known && g.attempt == r.attempt && g.state.Waiting()
	switch {
	case before != nil:
		return stepAnswer{claim: before}
	case !known:
		return stepAnswer{not: job.NotClaimed{Unknown: true}}
	case waits && g.throttled:
		return stepAnswer{not: job.NotClaimed{Throttled: true}}
	case waits && (g.parked || g.paused && g.wait == 0 && g.state == job.Queued):
		return stepAnswer{not: job.NotClaimed{Paused: true}}
	case waits && g.wait == 0 && g.stopped:
		return stepAnswer{not: job.NotClaimed{StillWaiting: true, Stopped: true}}
	case waits && g.wait == 0 && g.paused: // a CREATED job is not parked, so the worker tries again later
		return stepAnswer{not: job.NotClaimed{StillWaiting: true, Wait: createdWait}}
	case waits && g.wait == 0 && g.alive:
		return stepAnswer{locked: true}
	}
	return stepAnswer{not: job.NotClaimed{StillWaiting: waits, Wait: g.wait, WorkerDead: !g.alive}}
}
