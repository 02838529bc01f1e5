package judge

import (
	"strconv"
	"strings"
	"sync"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// TicketOf reads a correlation id, as the run wrote it.
func TicketOf(run, correlation string) (ticket int64, ok bool) {
	number, ok := strings.CutPrefix(correlation, run+".")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == number
}

// across is what is known across jobs: a byte for each ticket, and the schedules by id.
type across struct {
	mu        sync.Mutex
	tickets   []byte
	schedules map[string]*scheduleRuns
}

// What is known of a ticket.
const (
	ticketSent     = 1 << iota // its submission is in the history
	ticketAccepted             // a try was answered with a job
	ticketOpen                 // a try may have made a job, though no answer said so
	ticketHasJob
)

// mark adds flags of a ticket, and gives those that it had.
func (a *across) mark(ticket int64, flags byte) (before byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ticket >= 1 && ticket < int64(len(a.tickets)) { // others are reported where the job is checked
		before = a.tickets[ticket]
		a.tickets[ticket] |= flags
	}
	return before
}

// sent marks the ticket of a submission.
func (a *across) sent(f *history.Fact) {
	flags := byte(ticketSent)
	for _, try := range f.Submission.Tries {
		if try.Accepted() {
			flags |= ticketAccepted
		} else if try.Unknown() {
			flags |= ticketOpen
		}
	}
	a.mark(f.Ticket, flags)
}

// checkTicket: each ticket has one job, and one that was refused has none. Submissions without a job were marked before.
func (c *checker) checkTicket() {
	for _, f := range c.byKind[history.Submitted] {
		if f.Submission != nil {
			c.run.across.sent(f)
		}
	}
	if c.job == nil {
		return
	}
	c.run.across.addRun(c.job)
	ticket, ours := TicketOf(c.run.Run, c.job.CorrelationID)
	if !ours || ticket > c.run.Tickets {
		return
	}
	c.look(keyed)
	known := c.run.across.mark(ticket, ticketHasJob)
	c.must(known&ticketHasJob == 0, keyed, "ticket %d has more than one job", ticket)
	c.must(known&ticketSent > 0, accepted, "the job has ticket %d, which was never sent, or answered with another job", ticket)
	c.must(known&(ticketAccepted|ticketOpen) > 0 || known&ticketSent == 0, accepted, "ticket %d was refused, and its job exists", ticket)
}

// scheduleRuns is a schedule with the number of jobs of each of its due times, in microseconds.
type scheduleRuns struct {
	history.Schedule
	tenant int
	jobs   map[int64]int
	others int // jobs for no time
}

// addRun counts a job of a schedule that is known.
func (a *across) addRun(j *history.Job) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s := a.schedules[j.ScheduleID]; {
	case s == nil:
	case j.ScheduledFor.IsZero():
		s.others++
	default:
		s.jobs[j.ScheduledFor.UnixMicro()]++
	}
}

// checkRun: a run is of a schedule of its client, for a due time of it, and not early. That each due time has one is
// checked across jobs.
func (c *checker) checkRun() {
	c.look(scheduled)
	s := c.run.across.schedules[c.job.ScheduleID]
	if s == nil {
		c.must(false, accepted, "the job is a run of schedule %s, which was never created", c.job.ScheduleID)
		return
	}
	c.must(s.tenant == c.tenant, foreign, "the job is a run of a schedule of tenant %d", s.tenant)
	due := c.job.ScheduledFor
	if due.IsZero() {
		return // which is counted
	}
	after := due.Sub(s.CreatedAt)
	c.must(after > 0 && after%s.Interval == 0 && !due.After(s.EndAt), scheduled, "the job stands for %s, which is no due time of its schedule",
		clock(due))
	c.must(!c.job.CreatedAt.Before(due), scheduled, "the job stands for %s, and was created before, at %s", clock(due),
		clock(c.job.CreatedAt))
}

// checkSchedules: each due time has one job. The run has waited for the end of its schedules, unless it was cut short.
func (c *checker) checkSchedules() {
	if !c.run.complete(Rows) && !c.run.complete(Lists) {
		return
	}
	c.look(scheduled) // that there is none counts as checked
	for id, s := range c.run.across.schedules {
		c.look(scheduled)
		c.must(s.others == 0, scheduled, "schedule %s has %d runs for no due time, and none was triggered", id, s.others)
		for due := s.CreatedAt.Add(s.Interval); !due.After(s.EndAt); due = due.Add(s.Interval) {
			n := s.jobs[due.UnixMicro()]
			c.must(n == 1, scheduled, "%d jobs stand for %s of schedule %s, not one", n,
				clock(due), id)
		}
	}
}

// RowRule counts rows of whole tables that must not be there. @minute_ago is the service's time a minute of a real
// clock ago; @minute and @ten_minutes are the most of it that passed in so long.
type RowRule struct{ Invariant, What, SQL string }

// RowRules are what collect.Run counts.
var RowRules = []RowRule{
	{keyed, "idempotency keys that stand for nothing", `SELECT count(*) FROM idempotency_keys k
		WHERE answer_status IS NULL AND NOT EXISTS (SELECT FROM jobs WHERE job_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM batches WHERE batch_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM webhooks WHERE webhook_id = k.resource_id)
		AND NOT EXISTS (SELECT FROM tombstones WHERE job_id = k.resource_id)`},
	{accepted, "events of jobs that do not exist",
		`SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT FROM jobs WHERE job_id = e.job_id)`},
	{accepted, "reports of jobs that do not exist",
		`SELECT count(*) FROM reports r WHERE NOT EXISTS (SELECT FROM jobs WHERE job_id = r.job_id)`},
	{streamed, "events that come before an earlier one of their job in the client's stream", `SELECT count(*) FROM (
		SELECT tx, lag(tx) OVER (PARTITION BY job_id ORDER BY seq) AS before FROM events) e WHERE before > tx`},
	{ended, "complete batches without exactly one event", `SELECT count(*) FROM batches b
		LEFT JOIN (SELECT batch_id, client_id, count(*) AS n FROM client_events
			WHERE event_name = 'batch.completed' GROUP BY batch_id, client_id) e
		USING (batch_id, client_id) WHERE b.completed_at IS NOT NULL AND e.n IS DISTINCT FROM 1`},
	{ended, "events of complete batches that are not",
		`SELECT count(*) FROM client_events e JOIN batches b USING (batch_id) WHERE b.completed_at IS NULL`},
	{ended, "batches that are open for more than a minute after their last job", `SELECT count(*) FROM batches b WHERE completed_at IS NULL
		AND b.created_at < @minute_ago AND NOT EXISTS (SELECT FROM jobs j
			WHERE j.batch_id = b.batch_id AND (j.finished_at IS NULL OR j.finished_at > @minute_ago))`},
	{ended, "complete batches whose counts, event and items disagree", `SELECT count(*) FROM batches b JOIN client_events e USING (batch_id)
		WHERE b.completed_at IS NOT NULL AND e.event_name = 'batch.completed' AND (e.occurred_at <> b.completed_at
			OR e.data -> 'status' IS DISTINCT FROM to_jsonb(b.status) OR e.data -> 'succeeded' IS DISTINCT FROM to_jsonb(b.succeeded)
			OR e.data -> 'failed' IS DISTINCT FROM to_jsonb(b.failed) OR e.data -> 'canceled' IS DISTINCT FROM to_jsonb(b.canceled)
			OR e.data -> 'total' IS DISTINCT FROM to_jsonb(jsonb_array_length(b.items))
			OR b.succeeded + b.failed + b.canceled <> jsonb_array_length(b.items))`},
	{ended, "jobs whose failure is not that of their report", `SELECT count(*) FROM jobs j JOIN reports r USING (job_id, attempt)
		WHERE j.finished_at IS NOT NULL
		AND (j.failure_reason, j.failure_code, j.failure_retryable, j.failure_retry_after, j.failure_stage, j.failure_detail, j.finished_at)
			IS DISTINCT FROM
			(r.failure_reason, r.failure_code, r.failure_retryable, r.failure_retry_after, r.failure_stage, r.failure_detail, r.finished_at)`},
	{logged, "jobs whose times are not those of their last events", `SELECT count(*) FROM jobs j WHERE j.finished_at IS NOT NULL AND EXISTS (
		SELECT FROM events e WHERE e.job_id = j.job_id AND e.attempt = j.attempt
			AND (e.event_name = 'job.assigned' AND e.occurred_at > j.assigned_at OR e.next_state = j.state AND e.occurred_at <> j.finished_at
				OR e.event_name = 'job.queued' AND j.attempt = 1 AND j.lease_expiries = 0 AND e.occurred_at <> j.queued_at))`},
	{answered, "results that are not as long, or not of the digest, that they are said to be", `SELECT count(*) FROM results
		WHERE octet_length(body) <> size OR sha256(body) <> sha256`},
	{streamed, "events that are another client's than their job, or labelled otherwise", `SELECT count(*) FROM events e
		JOIN jobs j USING (job_id) WHERE e.client_id <> j.client_id OR e.seq = j.event_seq AND e.tx <> j.event_tx`},
	{streamed, "events whose data are not their job's", `SELECT count(*) FROM events e JOIN jobs j USING (job_id)
		WHERE e.event_name <> 'event.emitted' AND (e.data -> 'work_kind' IS DISTINCT FROM to_jsonb(j.work_kind)
			OR j.definition IS NOT NULL AND e.data -> 'duration_ms' IS DISTINCT FROM j.definition -> 'duration_ms')`},
	{keyed, "keys of one client that lead to what another one has, or came after what they lead to", `SELECT count(*) FROM idempotency_keys k
		LEFT JOIN jobs j ON j.job_id = k.resource_id LEFT JOIN batches b ON b.batch_id = k.resource_id
		WHERE coalesce(j.client_id, b.client_id) <> k.client_id OR k.created_at > coalesce(j.created_at, b.created_at) + @minute::interval
			OR k.expires_at <= k.created_at`},
	{delivered, "deliveries that do not say what their last attempt was answered", `SELECT count(*) FROM deliveries d
		JOIN delivery_attempts a ON a.delivery_id = d.delivery_id AND a.number = d.attempts
		WHERE d.last_status IS DISTINCT FROM a.status
			OR d.tried_at < a.started_at - @minute::interval OR d.tried_at > a.started_at + @ten_minutes::interval
			OR d.last_error IS DISTINCT FROM a.error AND d.last_error NOT IN ('WEBHOOK_DISABLED', 'WEBHOOK_DELETED')`},
	{delivered, "deliveries whose attempts are not numbered one after the other", `SELECT count(*) FROM deliveries d JOIN (
		SELECT delivery_id, count(*) AS n, min(number) AS first, max(number) AS last FROM delivery_attempts GROUP BY delivery_id) a
		USING (delivery_id) WHERE a.last <> d.attempts OR a.n <> a.last - a.first + 1`},
	{delivered, "callbacks that do not lead where their job says", `SELECT count(*) FROM deliveries d JOIN jobs j USING (job_id)
		WHERE d.url IS NOT NULL AND d.url IS DISTINCT FROM j.callback`},
	{delivered, "deliveries at another endpoint than their webhook, or settled before they were made", `SELECT count(*) FROM deliveries
		WHERE webhook_id IS NOT NULL AND endpoint_id <> webhook_id OR settled_at < created_at - interval '1 s'`},
	{foreign, "deliveries of one client's events to another", `SELECT count(*) FROM deliveries d LEFT JOIN webhooks w USING (webhook_id)
		LEFT JOIN jobs j ON j.job_id = d.job_id WHERE w.client_id <> d.client_id OR j.client_id <> d.client_id`},
}

// checkMetrics compares metrics with rows, and reports what RowRules found.
func (c *checker) checkMetrics() {
	for _, m := range c.run.Collected.Measured {
		if m.Counter && !c.run.Counters {
			continue
		}
		c.look(measured)
		c.must(m.Metric == m.Rows, measured, "%s is %v, the rows say %v", m.Name, m.Metric, m.Rows)
	}
	for _, i := range c.run.Collected.Inconsistencies {
		c.look(i.Invariant)
		c.must(i.Count == 0, i.Invariant, "%d %s", i.Count, i.What)
	}
}
