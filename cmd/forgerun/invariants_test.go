package main

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// history is all that the database says about one job.
type history struct {
	jobRow
	events  []eventRow
	reports []reportRow
	result  int // the attempt that left a result body, 0 for none
}

type jobRow struct {
	ID, RequestID string
	BatchID       string // "" for none
	Run           string // of a schedule at its due time; "" for none
	State         job.State
	Outcome       string
	Attempt       int
	EventSeq      int
	Fence         int
	LeaseExpiries int
	RunAt         time.Time
	ExecutionAt   *time.Time
	StartedAt     *time.Time
}

type eventRow struct {
	JobID, Name string
	Seq         int
	Prev, Next  job.State
	Attempt     int
	At          time.Time
}

type reportRow struct {
	JobID      string
	Attempt    int
	Outcome    string
	EventSeq   int
	FinishedAt time.Time
}

// violations is what a job's rows must never show, whatever happened. It is
// for a moment of rest: nobody holds the job.
func (h *history) violations() []string {
	var wrong []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf("job %s: ", h.ID)+fmt.Sprintf(format, args...))
		}
	}
	check(!h.State.Held(), "is held (%s) though all is at rest", h.State)
	check(h.EventSeq == len(h.events), "event_seq is %d with %d events", h.EventSeq, len(h.events))

	state, attempt := job.State(""), 1
	last := time.Time{}
	assigned, expired := 0, 0
	ends := map[int]eventRow{}
	for i, e := range h.events {
		check(e.Seq == i+1, "event %d has seq %d", i+1, e.Seq)
		check(!e.At.Before(last), "event %d is earlier than the one before", e.Seq)
		last = e.At
		if e.Name == job.EventRetried {
			attempt++
		}
		check(e.Attempt == attempt, "event %d is of attempt %d, not %d", e.Seq, e.Attempt, attempt)
		if e.Next == "" {
			continue
		}
		check(e.Prev == state, "event %d comes from %q, but the job was in %q", e.Seq, e.Prev, state)
		check(e.allowed(), "event %d: %s from %q to %q", e.Seq, e.Name, e.Prev, e.Next)
		state = e.Next
		switch {
		case e.Next == job.Assigned:
			assigned++
		case e.Name == job.EventLeaseExpired:
			expired++
		case e.Next.Final():
			_, twice := ends[e.Attempt]
			check(!twice, "attempt %d ended twice", e.Attempt)
			ends[e.Attempt] = e
		}
		if e.Next == job.Assigned || e.Next == job.Running {
			check(h.ExecutionAt == nil || !e.At.Before(*h.ExecutionAt), "%s before execution_at", e.Next)
		}
	}
	check(state == h.State, "is %s, but its events end in %q", h.State, state)
	check(attempt == h.Attempt, "is at attempt %d, but its events at %d", h.Attempt, attempt)
	check(assigned == h.Fence, "was claimed %d times, but its fence is %d", assigned, h.Fence)
	check(expired == h.LeaseExpiries, "has %d expired leases, but counts %d", expired, h.LeaseExpiries)
	check(h.StartedAt == nil || !h.StartedAt.Before(h.RunAt) || h.LeaseExpiries > 0, "started before run_at")
	check(h.Outcome == string(job.OutcomeOf(h.State)), "is %s with outcome %q", h.State, h.Outcome)
	check((h.result == h.Attempt) == (h.State == job.Succeeded), "is %s with a result of attempt %d", h.State, h.result)
	h.checkReports(ends, check)
	return wrong
}

// checkReports: one report for each attempt that ended, and every attempt
// before the current one ended as FAILED.
func (h *history) checkReports(ends map[int]eventRow, check func(bool, string, ...any)) {
	reported := map[int]bool{}
	for _, r := range h.reports {
		end, ended := ends[r.Attempt]
		check(ended, "attempt %d has a report, but no end", r.Attempt)
		check(!reported[r.Attempt], "attempt %d has two reports", r.Attempt)
		reported[r.Attempt] = true
		check(r.Outcome == string(job.OutcomeOf(end.Next)), "attempt %d ended as %s, but its report says %s", r.Attempt, end.Next, r.Outcome)
		check(r.FinishedAt.Equal(end.At), "the report of attempt %d has another time than its end", r.Attempt)
		check(r.EventSeq >= end.Seq && r.EventSeq <= h.EventSeq, "the report of attempt %d ends at event %d", r.Attempt, r.EventSeq)
	}
	for n := 1; n <= h.Attempt; n++ {
		end, ended := ends[n]
		check(ended == reported[n], "attempt %d: ended %v, reported %v", n, ended, reported[n])
		check(ended == (n < h.Attempt || h.State.Final()), "attempt %d of %d, %s: ended %v", n, h.Attempt, h.State, ended)
		check(n == h.Attempt || end.Next == job.Failed, "attempt %d ended as %q and was retried", n, end.Next)
	}
}

// allowed: the pair is in the table and the event has its name.
func (e eventRow) allowed() bool {
	switch {
	case e.Prev == "":
		return e.Next == job.Created && e.Name == job.EventCreated
	case job.IsLeaseReturn(e.Prev, e.Next):
		return e.Name == job.EventLeaseExpired
	}
	return job.CanTransition(e.Prev, e.Next) && e.Name == job.EventOf(e.Prev, e.Next)
}

// histories reads all jobs as of one moment.
func (s *stack) histories() map[string]*history {
	s.t.Helper()
	tx, err := s.db.BeginTx(s.ctx(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	require.NoError(s.t, err)
	defer func() { _ = tx.Rollback(s.ctx()) }()
	all := map[string]*history{}
	for _, row := range rowsOf[jobRow](s, tx, `SELECT job_id::text, request_id, coalesce(batch_id::text, ''),
		coalesce(schedule_id::text || scheduled_for, ''), state,
		coalesce(outcome, ''), attempt, event_seq,
			fence, lease_expiries, run_at, execution_at, started_at FROM jobs`) {
		all[row.ID] = &history{jobRow: row}
	}
	for _, e := range rowsOf[eventRow](s, tx, `SELECT job_id::text, event_name, seq, coalesce(prev_state, ''), coalesce(next_state, ''),
			attempt, occurred_at FROM events ORDER BY job_id, seq`) {
		if h := all[e.JobID]; h != nil {
			h.events = append(h.events, e)
		} else {
			s.t.Errorf("event of a job that does not exist: %+v", e)
		}
	}
	for _, r := range rowsOf[reportRow](s, tx, `SELECT job_id::text, attempt, outcome, event_seq, finished_at FROM reports`) {
		if h := all[r.JobID]; h != nil {
			h.reports = append(h.reports, r)
		} else {
			s.t.Errorf("report of a job that does not exist: %+v", r)
		}
	}
	type result struct {
		JobID   string
		Attempt int
	}
	for _, r := range rowsOf[result](s, tx, `SELECT job_id::text, attempt FROM results`) {
		all[r.JobID].result = r.Attempt
	}
	return all
}

func rowsOf[T any](s *stack, tx pgx.Tx, sql string) []T {
	s.t.Helper()
	rows, err := tx.Query(s.ctx(), sql)
	require.NoError(s.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[T])
	require.NoError(s.t, err)
	return all
}

// checkInvariants waits until no job is held and then checks everything that
// must hold after any fault and can be read from the stores.
func (s *stack) checkInvariants() {
	s.t.Helper()
	var all map[string]*history
	eventually(s.t, "no job is held", func() bool {
		all = s.histories()
		for _, h := range all {
			if h.State.Held() {
				return false
			}
		}
		return true
	})
	wrong := s.requestViolations(all)
	for _, h := range all {
		wrong = append(wrong, h.violations()...)
	}
	for _, w := range wrong {
		s.t.Error(w)
	}
	for what, sql := range storedViolations {
		require.Zero(s.t, s.count(sql), what)
	}
	s.checkTasks(all)
}

// storedViolations count rows that must not be there.
var storedViolations = map[string]string{
	"idempotency keys without what they stand for": `SELECT count(*) FROM idempotency_keys k
		WHERE (resource_id IS NOT NULL OR answer_status NOT BETWEEN 200 AND 299)
		AND NOT EXISTS (SELECT FROM jobs WHERE job_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM batches WHERE batch_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM webhooks WHERE webhook_id = k.resource_id)`,
	"jobs, batches or webhooks with two idempotency keys": `SELECT count(resource_id) - count(DISTINCT resource_id) FROM idempotency_keys`,
	"events before their predecessor in the client's stream": `SELECT count(*) FROM events e
		JOIN events p ON p.job_id = e.job_id AND p.seq = e.seq - 1
		WHERE p.tx > e.tx`,
	"events in another client's stream": `SELECT count(*) FROM events e JOIN jobs j USING (job_id) WHERE e.client_id <> j.client_id`,
	"batches that are complete without exactly one event": `SELECT count(*) FROM batches b WHERE completed_at IS NOT NULL
		AND 1 <> (SELECT count(*) FROM client_events e WHERE e.batch_id = b.batch_id AND e.client_id = b.client_id)`,
	"changes of state without the callback's delivery": `SELECT count(*) FROM events e JOIN jobs j USING (job_id)
		WHERE j.callback IS NOT NULL AND (e.next_state IS NOT NULL OR e.event_name = 'event.emitted')
		AND 1 <> (SELECT count(*) FROM deliveries d WHERE d.job_id = e.job_id AND d.seq = e.seq AND d.webhook_id IS NULL AND d.url = j.callback)`,
	"events without a delivery to who subscribed before": `SELECT count(*) FROM events e JOIN webhooks w USING (client_id)
		WHERE w.created_at < e.occurred_at AND w.updated_at = w.created_at AND w.disabled_at IS NULL AND w.deleted_at IS NULL
		AND w.events && ARRAY['*', split_part(e.event_name, '.', 1) || '.*', e.event_name]
		AND 1 <> (SELECT count(*) FROM deliveries d WHERE d.webhook_id = w.webhook_id AND d.event_id = e.event_id)`,
	"deliveries of another client's events": `SELECT count(*) FROM deliveries d
		LEFT JOIN webhooks w USING (webhook_id) LEFT JOIN jobs j ON j.job_id = d.job_id
		WHERE w.client_id <> d.client_id OR j.client_id <> d.client_id`,
	"deliveries that were confirmed by nobody": `SELECT count(*) FROM deliveries d WHERE state = 'DELIVERED'
		AND NOT EXISTS (SELECT FROM delivery_attempts a WHERE a.delivery_id = d.delivery_id AND a.error IS NULL
			AND a.status BETWEEN 200 AND 299)`,
	"deliveries with another number of attempts than recorded": `SELECT count(*) FROM deliveries d
		WHERE attempts <> (SELECT count(*) FROM delivery_attempts a WHERE a.delivery_id = d.delivery_id)`,
	"completed events of batches that are not": `SELECT count(*) FROM client_events e
		JOIN batches b USING (batch_id) WHERE b.completed_at IS NULL`,
}

// requestViolations: every accepted request has its job, and every job its one
// request.
func (s *stack) requestViolations(all map[string]*history) (wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.accepted {
		if all[id] == nil {
			wrong = append(wrong, "job "+id+" was accepted and does not exist")
		}
	}
	requests, runs := map[string]string{}, map[string]string{}
	for id, h := range all {
		if other, twice := runs[h.Run]; twice && h.Run != "" {
			wrong = append(wrong, "jobs "+id+" and "+other+" are of one due time")
		}
		runs[h.Run] = id
		if other, twice := requests[h.RequestID]; twice && h.Run == "" && (h.BatchID == "" || h.BatchID != all[other].BatchID) {
			wrong = append(wrong, "jobs "+id+" and "+other+" come from one request")
		}
		requests[h.RequestID] = id
		if !s.sent[h.RequestID] {
			wrong = append(wrong, "job "+id+" comes from a request that nobody sent")
		}
	}
	return wrong
}

// checkTasks waits until Redis holds no task without a job that waits for it, but
// for those of attempts that failed, which are kept in the archive. Tasks that a
// killed worker took stay active for a minute or two; they only must have a job.
func (s *stack) checkTasks(all map[string]*history) {
	s.t.Helper()
	if !s.workerRuns() {
		return
	}
	var left []string
	deadline := time.Now().Add(patience)
	for {
		left = nil
		for name, state := range s.tasks() {
			parts := strings.Split(name, ":")
			h := all[parts[0]]
			waits := h != nil && h.State.Waiting() && strconv.Itoa(h.Attempt) == parts[1]
			if state == "archived" && !waits {
				continue
			}
			if h == nil || (state != "active" && !waits) {
				left = append(left, name+" is "+state)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	require.Empty(s.t, left, "tasks without a job that waits")
}

// TestInvariantCheckerSeesDamage: a check that cannot fail proves nothing.
func TestInvariantCheckerSeesDamage(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	due := at(2)
	sound := func() *history {
		return &history{
			jobRow: jobRow{
				ID: "j", State: job.Succeeded, Outcome: "SUCCESS", Attempt: 2, EventSeq: 11, Fence: 3, LeaseExpiries: 1,
				RunAt: at(2), ExecutionAt: &due, StartedAt: &due,
			},
			events: []eventRow{
				{"j", job.EventCreated, 1, "", job.Created, 1, at(1)},
				{"j", job.EventQueued, 2, job.Created, job.Queued, 1, at(2)},
				{"j", job.EventAssigned, 3, job.Queued, job.Assigned, 1, at(2)},
				{"j", job.EventRunning, 4, job.Assigned, job.Running, 1, at(2)},
				{"j", job.EventFailed, 5, job.Running, job.Failed, 1, at(3)},
				{"j", job.EventRetried, 6, job.Failed, job.Queued, 2, at(4)},
				{"j", job.EventAssigned, 7, job.Queued, job.Assigned, 2, at(5)},
				{"j", job.EventLeaseExpired, 8, job.Assigned, job.Queued, 2, at(6)},
				{"j", job.EventAssigned, 9, job.Queued, job.Assigned, 2, at(7)},
				{"j", job.EventRunning, 10, job.Assigned, job.Running, 2, at(8)},
				{"j", job.EventSucceeded, 11, job.Running, job.Succeeded, 2, at(9)},
			},
			reports: []reportRow{{"j", 1, "FAILED", 5, at(3)}, {"j", 2, "SUCCESS", 11, at(9)}},
			result:  2,
		}
	}
	require.Empty(t, sound().violations())

	damages := map[string]func(h *history){
		"an event is lost":       func(h *history) { h.events = append(h.events[:4], h.events[5:]...) },
		"a gap in seq":           func(h *history) { h.events[10].Seq = 12 },
		"a broken chain":         func(h *history) { h.events[4].Prev = job.Assigned },
		"a forbidden step":       func(h *history) { h.events[7].Name = job.EventQueued },
		"time runs backwards":    func(h *history) { h.events[5].At = at(2) },
		"another state":          func(h *history) { h.State, h.Outcome, h.result = job.Failed, "FAILED", 0 },
		"no outcome":             func(h *history) { h.Outcome = "" },
		"held":                   func(h *history) { h.State = job.Running },
		"early":                  func(h *history) { late := at(3); h.ExecutionAt = &late },
		"no report":              func(h *history) { h.reports = h.reports[:1] },
		"no earlier report":      func(h *history) { h.reports = h.reports[1:] },
		"a report too many":      func(h *history) { h.reports = append(h.reports, reportRow{"j", 3, "FAILED", 11, at(9)}) },
		"a report of another":    func(h *history) { h.reports[1].Outcome = "FAILED" },
		"an attempt ended twice": func(h *history) { h.events[8] = h.events[10]; h.events[8].Seq = 9 },
		"a claim without fence":  func(h *history) { h.Fence = 2 },
		"uncounted lease":        func(h *history) { h.LeaseExpiries = 0 },
		"no result":              func(h *history) { h.result = 0 },
		"event_seq is off":       func(h *history) { h.EventSeq = 10 },
	}
	for name, damage := range damages {
		h := sound()
		damage(h)
		require.NotEmpty(t, h.violations(), name)
	}
}
