package repo_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// transitions has the allowed changes of a job's state, with their events. "" is the state before creation.
var transitions = map[[2]job.State]string{
	{"", job.Created}: job.EventCreated, {job.Created, job.Queued}: job.EventQueued, {job.Created, job.Canceled}: job.EventCanceled,
	{job.Queued, job.Assigned}: job.EventAssigned, {job.Queued, job.Canceled}: job.EventCanceled,
	{job.Assigned, job.Running}: job.EventRunning, {job.Assigned, job.Canceled}: job.EventCanceled,
	{job.Assigned, job.Queued}: job.EventLeaseExpired, {job.Running, job.Succeeded}: job.EventSucceeded,
	{job.Running, job.Failed}: job.EventFailed, {job.Running, job.Canceled}: job.EventCanceled, {job.Failed, job.Queued}: job.EventRetried,
}

var outcomes = map[job.State]job.Outcome{
	job.Succeeded: job.OutcomeSuccess, job.Failed: job.OutcomeFailed, job.Canceled: job.OutcomeCanceled,
}

// force creates a job in a state without using the store. The job is due and at attempt 1 of 4. A job in ASSIGNED or RUNNING belongs to
// the fixture's worker with fence 1.
func (f *fixture) force(s job.State) job.ID {
	id := newID()
	f.exec(`INSERT INTO jobs (job_id, client_id, type, work_kind, definition, state, outcome, max_attempts, auto_retry, event_seq, fence,
		worker_id,
			created_at, updated_at, execution_at, run_at, queued_at, started_at, finished_at, failure_code, failure_reason, language, request_id)
		SELECT $1, $2, 'DEFERRED', 'SUCCESS_FAST', '{}', $3, nullif($4, ''), 4, false, 1, 1,
			CASE WHEN $3 IN ('ASSIGNED', 'RUNNING') THEN $5::uuid END,
			ago, ago, ago, ago, CASE WHEN $3 <> 'CREATED' THEN ago END, CASE WHEN $3 IN ('RUNNING', 'SUCCEEDED', 'FAILED') THEN ago END,
			CASE WHEN $4 <> '' THEN ago END, CASE $3 WHEN 'FAILED' THEN 'RFA_INTERNAL' END, CASE $3 WHEN 'FAILED' THEN 'work-panicked' END, 'en',
				'r-1'
		FROM (VALUES (clock_timestamp() - interval '1 s')) AS v(ago)`,
		id.String(), f.client.String(), string(s), string(outcomes[s]), f.worker.String())
	return id
}

func operations(f *fixture) map[string]func(id job.ID) error {
	lease := func(id job.ID) job.ClaimID { return job.ClaimID{JobID: id, Attempt: 1, Fence: 1} }
	fails := func(id job.ID) job.Finish { return failure(lease(id), job.FailedOnce) }
	return map[string]func(id job.ID) error{
		"insert": func(id job.ID) error {
			return errOf(f.store.InsertJob(f.ctx(), f.submission(func(s *job.Submission) { s.Job.ID = id })))
		},
		"queue":          func(job.ID) error { return errOf(f.store.QueueDue(f.ctx(), 10)) },
		"claim":          func(id job.ID) error { return errOf(f.store.Claim(f.ctx(), f.worker, id, 1)) },
		"start":          func(id job.ID) error { return errOf(f.store.Start(f.ctx(), lease(id))) },
		"succeed":        func(id job.ID) error { return errOf(f.store.Finish(f.ctx(), success(lease(id)))) },
		"fail":           func(id job.ID) error { return errOf(f.store.Finish(f.ctx(), fails(id))) },
		"fail and retry": func(id job.ID) error { return errOf(f.store.Finish(f.ctx(), withRetry(fails(id), time.Second))) },
		"cancel":         func(id job.ID) error { return errOf(f.store.Cancel(f.ctx(), f.client, id)) },
		"retry":          func(id job.ID) error { return errOf(f.store.Retry(f.ctx(), f.client, id, 1, 0, "")) },
		"release": func(id job.ID) error {
			return errOf(f.store.Release(f.ctx(), []job.ClaimID{lease(id)}, []time.Duration{0}))
		},
	}
}

// tryAll tries each operation on a job in each state. The job's updated_at is moved ahead by `later`.
func (f *fixture) tryAll(later string, check func(what string, from job.State, id job.ID, operation func(id job.ID) error)) {
	for _, from := range job.States {
		for name, operation := range operations(f) {
			id := f.force(from)
			f.exec(`UPDATE jobs SET updated_at = updated_at + $2::interval WHERE job_id = $1`, id.String(), later)
			check(name+" of a job that is "+string(from), from, id, operation)
		}
	}
}

// Promise: contract 9a
func TestTransitionsAreThoseOfTheTable(t *testing.T) {
	f := setup(t)
	caused := map[[2]job.State]string{{"", job.Created}: job.EventCreated}
	f.tryAll("0", func(what string, from job.State, id job.ID, operation func(id job.ID) error) {
		before := f.all(id)
		err := operation(id)
		log := f.log(id)
		if len(log) == 0 { // most operations return no error if there is nothing to do
			require.True(t, err == nil || errors.Is(err, job.ErrStale) || job.CodeOf(err) == job.CodeConflict, "%s: %v", what, err)
			require.Equal(t, before, f.all(id), "%s was refused, yet it changed", what)
			return
		}
		require.NoError(t, err, what)
		at := from
		for _, e := range log {
			require.Equal(t, at, job.State(e.Prev), what)
			at = job.State(e.Next)
			pair := [2]job.State{job.State(e.Prev), at}
			require.Equal(t, transitions[pair], e.Name, what)
			caused[pair] = e.Name
		}
		require.Equal(t, at, f.state(id), what)
	})
	require.Empty(t, cmp.Diff(transitions, caused))
}

// While Postgres' clock is behind the last event, new events get the time of that event.
func TestTimeOfEventsNeverRunsBackwards(t *testing.T) {
	f := setup(t)
	steps := 0
	f.tryAll("1 hour", func(what string, _ job.State, id job.ID, operation func(id job.ID) error) {
		before := f.job(id).UpdatedAt
		_ = operation(id)
		for _, e := range f.log(id) {
			require.Equal(t, before, e.At, what)
			steps++
		}
		require.Equal(t, before, f.job(id).UpdatedAt)
	})
	require.Greater(t, steps, 10)
}

// Promise: contract 9a
func TestSchemaKnowsTheTable(t *testing.T) {
	f := setup(t)
	states := append([]job.State{"", "DREAMING"}, job.States...)
	for _, name := range []string{job.EventQueued, job.EventLeaseExpired} {
		for _, seq := range []int{1, 2} {
			for _, from := range states {
				for _, to := range states {
					event, allowed := transitions[[2]job.State{from, to}]
					allowed = allowed && (from != "" || seq == 1) && (event != job.EventLeaseExpired || name == event) || from == "" && to == ""
					_, err := f.db.Exec(f.ctx(), `INSERT INTO events (job_id, client_id, seq, event_id, event_name, prev_state, next_state, attempt,
						occurred_at, data)
						VALUES (gen_random_uuid(), gen_random_uuid(), $1, gen_random_uuid(), $2, nullif($3, ''), nullif($4, ''), 1, now(), '{}')`,
						seq, name, string(from), string(to))
					if allowed {
						require.NoError(t, err, "%s: %q to %q as event %d", name, from, to, seq)
					} else {
						requireBroken(t, "events_transition_allowed", err)
					}
				}
			}
		}
	}
}

func requireBroken(t *testing.T, constraint string, err error) {
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, constraint, pg.ConstraintName, pg.Message)
}

type brokenRow struct {
	constraint, sql string
	of              job.State // state of the job that the statement changes; "" if it needs no job
}

func brokenRows() (rows []brokenRow) {
	statement := ""
	for line := range strings.SplitSeq(strings.ReplaceAll(read("broken.txt"), "\n\t", " "), "\n") {
		if head, ok := strings.CutPrefix(line, "= "); ok {
			statement = head
		} else if head, text, ok := strings.Cut(line, ": "); ok && !strings.HasPrefix(line, "--") {
			constraint, of, _ := strings.Cut(head, " ")
			rows = append(rows, brokenRow{constraint, strings.Replace(statement, "...", text, 1), job.State(of)})
		}
	}
	return rows
}

func TestSchemaRefusesBrokenRows(t *testing.T) {
	f := setup(t)
	tested := []string{"events_transition_allowed"} // tested by TestSchemaKnowsTheTable
	for _, b := range brokenRows() {
		var args []any
		if b.of != "" {
			args = []any{f.force(b.of).String()}
		}
		_, err := f.db.Exec(f.ctx(), b.sql, args...)
		require.Error(t, err, "%+v", b)
		requireBroken(t, b.constraint, err)
		tested = append(tested, b.constraint)
	}
	rows := must(f.db.Query(f.ctx(), `SELECT conname FROM pg_constraint
		WHERE contype = 'c' AND connamespace = 'public'::regnamespace AND conrelid <> 'goose_db_version'::regclass`))(t)
	names := must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	slices.Sort(tested)
	require.ElementsMatch(t, names, slices.Compact(tested), "each CHECK has a row that breaks it")
}
