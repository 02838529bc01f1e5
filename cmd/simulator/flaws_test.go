package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/tour"
)

// TestTourFindsFlaws seeds one fault at a time: the tour must name the kinds
// that show it, give the reason, and exit with 1.
func TestTourFindsFlaws(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flaws    flaws
		outage   bool
		slowStop bool
		kinds    string // the verdict's list
		reason   string
	}{
		"wrong end": {
			flaws:  flaws{tamper: both("SUCCESS_FAST", set("state", "FAILED"), set("outcome", "FAILED"))},
			kinds:  "SUCCESS_FAST",
			reason: "attempt 1 of SUCCESS_FAST failed with",
		},
		"wrong outcome": {
			flaws: on("job", "CPU_BURST", set("outcome", "FAILED")),
			kinds: "CPU_BURST", reason: `a poll shows SUCCEEDED with outcome "FAILED"`,
		},
		"wrong outcome in report": {
			flaws: on("report", "CPU_BURST", set("outcome", "CANCELED")),
			kinds: "CPU_BURST", reason: "ended as SUCCEEDED, its report says CANCELED",
		},
		"another kind": {flaws: on("job", "IO_HEAVY", set("work_kind", "CPU_BURST")), kinds: "IO_HEAVY", reason: "of kind CPU_BURST"},
		"another job": {
			flaws: on("job", "IO_HEAVY", set("job_id", "x")),
			kinds: "IO_HEAVY", reason: "it is about another id than was asked for",
		},
		"report of another job": {
			flaws: on("report", "IO_HEAVY", set("job_id", "x")),
			kinds: "IO_HEAVY", reason: "/report: status 200, \"application/json\": it is about another id than was asked for",
		},
		"times the wrong way": {
			flaws: on("job", "IO_HEAVY", set("updated_at", "1999-01-01T00:00:00Z")),
			kinds: "IO_HEAVY", reason: "wrong order",
		},
		"time not in UTC": {
			flaws: on("job", "IO_HEAVY", set("updated_at", "2030-01-01T00:00:00+01:00")),
			kinds: "IO_HEAVY", reason: "a poll shows a time that is not in UTC",
		},
		"catalogue row changed": {
			flaws: on("job", "IO_HEAVY", set("definition", map[string]any{"duration_ms": 1})),
			kinds: "IO_HEAVY", reason: "definition.duration_ms is 1, the catalogue has 15000",
		},
		"failing row changed": {
			flaws: on("job", "FAIL_IMMEDIATE", set("definition", map[string]any{"duration_ms": 500, "should_fail": false, "payload_size": 1024})),
			kinds: "FAIL_IMMEDIATE", reason: "definition.should_fail is false, the catalogue has true",
		},
		"payload row changed": {
			flaws: on("job", "PAYLOAD_SMALL", set("definition", map[string]any{"duration_ms": 2000, "payload_size": 7})),
			kinds: "PAYLOAD_SMALL", reason: "definition.payload_size is 7, the catalogue has 1024",
		},
		"ended on another attempt": {
			flaws: on("job", "SUCCESS_FAST", set("attempt", 2)),
			kinds: "SUCCESS_FAST", reason: "a poll shows SUCCEEDED (attempt 2), which the job was not at that time",
		},
		"finished before started": {
			flaws: on("report", "RUNS_LONG", set("finished_at", "1999-01-01T00:00:00Z")),
			kinds: "RUNS_LONG", reason: "attempt 1 finished before it started",
		},
		"event id twice": {
			flaws: on("report", "MEMORY_SPIKE", event(1, "event_id", "x"), event(2, "event_id", "x")),
			kinds: "MEMORY_SPIKE", reason: `event 3 (job.assigned) has an id that is not its own: "x"`,
		},
		"event of another job": {
			flaws: on("report", "MEMORY_SPIKE", event(1, "job_id", "x")),
			kinds: "MEMORY_SPIKE", reason: `event 2 (job.queued) is of job "x"`,
		},
		"event of another attempt": {
			flaws: on("report", "MEMORY_SPIKE", event(1, "attempt", 2)),
			kinds: "MEMORY_SPIKE", reason: "event 2 (job.queued) is of attempt 2, not of 1",
		},
		"queued too early": {
			flaws: on("report", "SCHEDULED_ON_TIME", event(1, "timestamp", "2000-01-01T00:00:03Z")),
			kinds: "SCHEDULED_ON_TIME", reason: "event 2 (job.queued) came 1s before execution_at",
		},
		"forbidden step": {
			flaws: on("report", "MEMORY_SPIKE", event(2, "next_state", "CREATED")),
			kinds: "MEMORY_SPIKE", reason: `goes from "QUEUED" to "CREATED", which is not allowed`,
		},
		"misnamed event": {
			flaws: on("report", "MEMORY_SPIKE", event(2, "event_name", "job.running")),
			kinds: "MEMORY_SPIKE", reason: `event 3 (job.running) goes from "QUEUED" to "ASSIGNED", which has another name`,
		},
		"annotation with a state": {
			flaws: on("report", "RETRY_LIMIT_REACHED", lastEvent("next_state", "FAILED")),
			kinds: "RETRY_LIMIT_REACHED", reason: `is no transition, and goes from "" to "FAILED"`,
		},
		"another duration in event": {
			flaws: on("report", "MEMORY_SPIKE", event(0, "data", map[string]any{"work_kind": "MEMORY_SPIKE", "duration_ms": 1})),
			kinds: "MEMORY_SPIKE", reason: "has duration_ms 1 in its data, the catalogue has 12000",
		},
		"another outcome in event": {
			flaws: on("report", "MEMORY_SPIKE", event(0, "data", map[string]any{"work_kind": "MEMORY_SPIKE", "expected_outcome": "FAILED"})),
			kinds: "MEMORY_SPIKE", reason: "has expected_outcome FAILED in its data, the catalogue has SUCCEEDED",
		},
		"cancel of another job": {
			flaws: on("cancel", "CANCEL_BEFORE_START", set("job_id", "x")),
			kinds: "CANCEL_BEFORE_START", reason: "/cancel: status 200, \"application/json\": it is about another id than was asked for",
		},
		"cancel without time": {
			flaws: on("cancel", "CANCEL_BEFORE_START", set("updated_at", nil)),
			kinds: "CANCEL_BEFORE_START", reason: "the answer to cancel has no updated_at",
		},
		"started though canceled": {
			flaws: on("report", "CANCEL_BEFORE_START", set("started_at", "2000-01-01T00:00:05Z"), set("finished_at", "2000-01-01T00:00:05Z")),
			kinds: "CANCEL_BEFORE_START", reason: "the report of attempt 1 has started_at 00:00:05.000000Z, its events have the start (none)",
		},
		"acceptance without time": {
			flaws: on("receipt", "WEBHOOK_5XX", set("created_at", nil)),
			kinds: "WEBHOOK_5XX", reason: "the acceptance has no created_at",
		},
		"acceptance without place": {flaws: flaws{noLocation: true}, kinds: "SUCCESS_FAST", reason: `the acceptance has Location ""`},
		"replay not told": {
			flaws: flaws{silentReplay: true},
			kinds: "DUPLICATE_SUBMIT_SAME_KEY", reason: "2 tries with one key were each answered as the one that made the job",
		},
		"refusal with a job": {flaws: flaws{placeRefused: true}, kinds: "PAYLOAD_INVALID", reason: "the refusal names a job (/v1/jobs/1)"},
		"slow to stop": {
			flaws: flaws{}, outage: true, slowStop: true,
			kinds: "SCHEDULED_LATE_RECOVERY", reason: "the service took until 2s after the job's time to stop",
		},
		"early start": {
			flaws: flaws{early: 500 * time.Millisecond},
			kinds: "SCHEDULED_ON_TIME, SCHEDULED_LATE_RECOVERY", reason: "event 4 (job.running) came 498ms before execution_at",
		},
		"late start": {
			flaws: flaws{late: 3 * time.Second},
			kinds: "SCHEDULED_ON_TIME", reason: "queued 3s after its time, allowed are 2s",
		},
		"late after the outage": {
			flaws: flaws{late: 10 * time.Second}, outage: true,
			kinds: "SCHEDULED_ON_TIME, SCHEDULED_LATE_RECOVERY", reason: "after the service was back, allowed are 5s",
		},
		"ran during the outage": {
			flaws: flaws{early: 8 * time.Second}, outage: true,
			kinds: "CANCEL_BEFORE_START, SCHEDULED_ON_TIME, SCHEDULED_LATE_RECOVERY", reason: "before the service was started again",
		},
		"execution_at changed": {
			flaws: on("job", "SCHEDULED_ON_TIME", set("execution_at", nil)),
			kinds: "SCHEDULED_ON_TIME", reason: "with execution_at (none), asked for was",
		},
		"far future runs": {
			flaws: flaws{early: 30 * 24 * time.Hour},
			kinds: "SCHEDULED_FAR_FUTURE", reason: "event 4 (job.running) came 719h59m59.998s before execution_at",
		},
		"work too short": {
			flaws: flaws{quick: true},
			kinds: "SUCCESS_SLOW", reason: "ended as SUCCESS after 0s, its work takes 8.905s",
		},
		"no time to cancel": {
			flaws: flaws{quick: true},
			kinds: "CANCEL_DURING_RUN", reason: "each of 5 jobs had ended before it could be canceled",
		},
		"duration invented": {
			flaws: on("report", "RUNS_LONG", set("duration_ms", 500_000)),
			kinds: "RUNS_LONG", reason: "attempt 1 took 11s, its report says 8m20s",
		},
		"no finish": {flaws: on("report", "RUNS_LONG", set("finished_at", nil)), kinds: "RUNS_LONG", reason: "lacks finished_at"},
		"no start": {
			flaws: on("report", "RUNS_LONG", set("started_at", nil)),
			kinds: "RUNS_LONG", reason: "the report of attempt 1 has started_at (none)",
		},
		"missing event": {
			flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { return append(e[:2:2], e[3:]...) })),
			kinds: "MEMORY_SPIKE", reason: "event 3 (job.running) has seq 4",
		},
		"missing event, renumbered": {
			flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { return renumber(append(e[:2:2], e[3:]...)) })),
			kinds: "MEMORY_SPIKE", reason: `leaves "ASSIGNED", but the job was in "QUEUED"`,
		},
		"missing last event": {
			flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { return e[:len(e)-1] })),
			kinds: "MEMORY_SPIKE", reason: "the job is SUCCEEDED, but its log ends in RUNNING",
		},
		"no events": {
			flaws: on("report", "MEMORY_SPIKE", events(func([]any) []any { return nil })),
			kinds: "MEMORY_SPIKE", reason: "the report of attempt 1 has no events",
		},
		"swapped events": {
			flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { e[2], e[3] = e[3], e[2]; return e })),
			kinds: "MEMORY_SPIKE", reason: "event 3 (job.running) has seq 4",
		},
		"swapped, renumbered": {
			flaws: on("report", "MEMORY_SPIKE", events(func(e []any) []any { e[2], e[3] = e[3], e[2]; return renumber(e) })),
			kinds: "MEMORY_SPIKE", reason: "event 4 (job.assigned) is earlier",
		},
		"event without work_kind": {
			flaws: on("report", "MEMORY_SPIKE", event(1, "data", nil)),
			kinds: "MEMORY_SPIKE", reason: `event 2 (job.queued) has work_kind "" in its data`,
		},
		"duplicate keys forgotten": {flaws: flaws{forgetKeys: true}, kinds: "DUPLICATE_SUBMIT_SAME_KEY", reason: "has more than one job"},
		"keys mixed up": {
			flaws: flaws{oneKey: true},
			kinds: "DUPLICATE_SUBMIT_DIFFERENT_KEY", reason: "the answer to ticket 20 shows the job of ticket 19",
		},
		"retry not limited": {
			flaws: flaws{endlessRetry: true},
			kinds: "RETRY_LIMIT_REACHED", reason: "a poll shows max_attempts 4 at attempt 5",
		},
		"retry refused": {
			flaws:  flaws{refuseRetry: true},
			kinds:  "RETRY_ON_FAIL, RETRY_LIMIT_REACHED",
			reason: "the retry was refused with RFA_JOB_CONFLICT, though the job could be retried",
		},
		"retry miscounted": {
			flaws: on("retry", "RETRY_ON_FAIL", set("attempt", 1)),
			kinds: "RETRY_ON_FAIL", reason: "the job is QUEUED though all should have ended",
		},
		"exhaustion not told": {
			flaws: on("report", "RETRY_LIMIT_REACHED", events(func(e []any) []any { return e[:len(e)-1] })),
			kinds: "RETRY_LIMIT_REACHED", reason: "attempt 4 of 4, FAILED: 0 events say that the retries are exhausted",
		},
		"foreign code": {
			flaws: onFailure("FAIL_IMMEDIATE", "code", "E_OOPS"),
			kinds: "FAIL_IMMEDIATE", reason: "failure.code is E_OOPS, the report of the attempt has",
		},
		"lost worker": {
			flaws: onFailure("FAIL_AFTER_RETRYABLE", "code", "RFA_EXEC_WORKER_UNAVAILABLE"),
			kinds: "FAIL_AFTER_RETRYABLE", reason: "failure.code is RFA_EXEC_WORKER_UNAVAILABLE, the report of the attempt has",
		},
		"timeout not told": {
			flaws: onFailure("RUNS_OVER_TIMEOUT", "code", "RFA_INTERNAL"),
			kinds: "RUNS_OVER_TIMEOUT", reason: `failure.code is RFA_INTERNAL, the report of the attempt has "RFA_EXEC_TIMEOUT"`,
		},
		"timeout as failure": {
			flaws: onFailure("RUNS_OVER_TIMEOUT", "jobStatus", "FAILED"),
			kinds: "RUNS_OVER_TIMEOUT", reason: `failure.jobStatus is "FAILED" with the code RFA_EXEC_TIMEOUT`,
		},
		"wrongly retryable": {
			flaws: onFailure("FAIL_AFTER_PROGRESS", "retryable", true),
			kinds: "FAIL_AFTER_PROGRESS", reason: "failure.retryable is true, expected false",
		},
		"not retryable": {
			flaws: onFailure("FAIL_AFTER_RETRYABLE", "retryable", false),
			kinds: "FAIL_AFTER_RETRYABLE", reason: "failure.retryable is false, expected true",
		},
		"retryable not told": {
			flaws: onFailure("FAIL_AFTER_RETRYABLE", "retryable", nil),
			kinds: "FAIL_AFTER_RETRYABLE", reason: "failure.retryable is false, expected true",
		},
		"no retryAfter": {
			flaws: onFailure("FAIL_AFTER_RETRYABLE", "retryAfter", nil),
			kinds: "FAIL_AFTER_RETRYABLE", reason: "without a retryAfter",
		},
		"failure of another job": {flaws: onFailure("FAIL_IMMEDIATE", "jobId", "x"), kinds: "FAIL_IMMEDIATE", reason: `failure.jobId is "x"`},
		"no failure": {
			flaws: on("job", "FAIL_IMMEDIATE", set("failure", nil)),
			kinds: "FAIL_IMMEDIATE", reason: "the failed job carries no failure",
		},
		"failure of a good job": {
			flaws: on("job", "SUCCESS_NORMAL", set("failure", map[string]any{})),
			kinds: "SUCCESS_NORMAL", reason: "the SUCCEEDED job carries a failure",
		},
		"cut result": {
			flaws: on("job", "PAYLOAD_LARGE", set("result", map[string]any{"size_bytes": 65536, "checksum": map[string]any{"value": "x"}})),
			kinds: "PAYLOAD_LARGE", reason: "result.size_bytes is 65536, expected 262144",
		},
		"result without checksum": {
			flaws: on("job", "PAYLOAD_SMALL", set("result", map[string]any{"size_bytes": 1024})),
			kinds: "PAYLOAD_SMALL", reason: "no checksum",
		},
		"invalid accepted": {flaws: flaws{acceptInvalid: true}, kinds: "PAYLOAD_INVALID", reason: "PAYLOAD_INVALID was accepted as job"},
		"cancel ignored": {
			flaws: flaws{ignoreCancel: true},
			kinds: "CANCEL_BEFORE_START, CANCEL_DURING_RUN, SCHEDULED_FAR_FUTURE", reason: "the cancel was answered with CANCELED, and the job is SUCCEEDED",
		},
		"canceled twice": {
			flaws:  flaws{secondCancel: true},
			kinds:  "CANCEL_BEFORE_START, CANCEL_DURING_RUN, SCHEDULED_FAR_FUTURE",
			reason: `event 6 (job.canceled) goes from "CANCELED" to "CANCELED", which is not allowed`,
		},
		"canceled too soon": {
			flaws: on("report", "CANCEL_DURING_RUN", event(4, "prev_state", "ASSIGNED")),
			kinds: "CANCEL_DURING_RUN", reason: `event 5 (job.canceled) leaves "ASSIGNED", but the job was in "RUNNING"`,
		},
		"no id": {
			flaws: on("receipt", "WEBHOOK_5XX", set("job_id", "")),
			kinds: "WEBHOOK_5XX", reason: "the submission was answered with 202 and cannot be read",
		},
		"odd acceptance": {
			flaws: on("receipt", "WEBHOOK_5XX", set("state", "RUNNING"), set("created_at", nil)),
			kinds: "WEBHOOK_5XX", reason: "accepted as RUNNING",
		},
		"scheduled but queued": {
			flaws: on("receipt", "SCHEDULED_ON_TIME", set("state", "QUEUED")),
			kinds: "SCHEDULED_ON_TIME", reason: "accepted as QUEUED",
		},
		"more attempts than that": {flaws: on("job", "WEBHOOK_5XX", set("max_attempts", 0)), kinds: "WEBHOOK_5XX", reason: "max_attempts 0"},
		"never ends": {
			flaws: flaws{stuck: "WEBHOOK_TIMEOUT"},
			kinds: "WEBHOOK_TIMEOUT", reason: "not finished within 15m0s; last seen RUNNING",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(0.1)
			f.flaws = c.flaws
			adjust := []func(*tour.Options){func(*tour.Options) {}}
			if c.outage {
				adjust[0] = withOutage(f)
			}
			if c.slowStop {
				adjust = append(adjust, stoppingSlowly)
			}
			if f.flaws.quick || f.flaws.noLocation || f.flaws.early > time.Hour || f.flaws.ignoreCancel {
				adjust = append(adjust, only(strings.Split(c.kinds, ", ")...))
			}
			p := play(t, f, adjust...)
			require.Equal(t, exitDifferent, p.code, p.stdout+p.stderr)
			require.Contains(t, p.stdout, " kinds differ: "+c.kinds+".\n")
			require.Contains(t, p.stdout, c.reason)
		})
	}
}

// on makes a flaw that edits one kind's answers of one sort.
func on(what, kind string, edits ...func(map[string]any)) flaws {
	return flaws{tamper: func(w string, j *fakeJob, body map[string]any) {
		if w != what || j.Kind != kind || what == "job" && !isFinal(j.State) {
			return
		}
		for _, edit := range edits {
			edit(body)
		}
	}}
}

// both edits the job and its report alike.
func both(kind string, edits ...func(map[string]any)) func(string, *fakeJob, map[string]any) {
	job, report := on("job", kind, edits...), on("report", kind, edits...)
	return func(what string, j *fakeJob, body map[string]any) {
		job.tamper(what, j, body)
		report.tamper(what, j, body)
	}
}

func onFailure(kind, member string, value any) flaws {
	return on("job", kind, func(body map[string]any) { body["failure"].(map[string]any)[member] = value })
}

func set(member string, value any) func(map[string]any) {
	return func(body map[string]any) { body[member] = value }
}

func events(edit func([]any) []any) func(map[string]any) {
	return func(body map[string]any) { body["events"] = edit(body["events"].([]any)) }
}

// event edits one member of one event, counted from 0.
func event(i int, member string, value any) func(map[string]any) {
	return events(func(e []any) []any {
		e[i].(map[string]any)[member] = value
		return e
	})
}

// lastEvent edits one member of the last event.
func lastEvent(member string, value any) func(map[string]any) {
	return events(func(e []any) []any {
		e[len(e)-1].(map[string]any)[member] = value
		return e
	})
}

func renumber(e []any) []any {
	for i := range e {
		e[i].(map[string]any)["seq"] = i + 1
	}
	return e
}

// stoppingSlowly lets the outage begin only after the job's time.
func stoppingSlowly(o *tour.Options) {
	stop := o.Outage
	o.Outage = func(ctx context.Context, until time.Time) (tour.OutageTimes, error) {
		if err := load.Sleep(ctx, time.Until(until)+time.Second); err != nil {
			return tour.OutageTimes{}, err
		}
		return stop(ctx, until)
	}
}
