package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func (t *trace) result(rule string) (found verdict.Result) {
	for _, r := range t.judge().Results {
		if r.Rule == rule {
			found = r
		}
	}
	return found
}

// The first of `groups` is the batch of the job; the others are bulk operations.
func (t *trace) end(n byte, groups ...string) *trace {
	run := verdict.Run{ID: id(n), State: "SUCCEEDED", Finished: t.now, Groups: groups}
	if len(groups) > 0 {
		run.Batch = groups[0]
	}
	t.Runs = append(t.Runs, run)
	return t
}

func (t *trace) over(group string) *trace {
	if t.Groups == nil {
		t.Groups = map[string]time.Time{}
	}
	t.Groups[group] = t.now
	return t
}

func (t *trace) see(what string) *trace {
	return t.send(verdict.Exchange{Method: "GET", Path: "/v1/batches/" + what, Status: 200, Job: what, Final: []string{what}, Reused: true})
}

// A client may learn of the end of a job from the end of its batch or bulk operation. The time limit then starts at the end of the batch
// or bulk operation.
func TestOutcomesOfGroups(t *testing.T) {
	t.Parallel()
	many := submit(7, func(x *verdict.Exchange) {
		x.Role, x.Path, x.Made, x.Shown = verdict.SubmitMany, "/v1/jobs/batch", "batch", []string{id(7), id(8)}
	})
	for name, c := range map[string]struct {
		does   func(*trace)
		status verdict.Status
	}{
		"reads the batch": {func(t *trace) { t.end(7, "batch").end(8, "batch").over("batch").see("batch") }, verdict.OK},
		"reads the batch after a slow job": {func(t *trace) {
			t.end(7, "batch").wait(5*time.Minute).end(8, "batch").over("batch").see("batch")
		}, verdict.OK},
		"reads the batch before its outcome": {func(t *trace) { t.end(7, "batch").end(8, "batch").see("batch").over("batch") }, verdict.OK},
		"reads the batch too late": {func(t *trace) {
			t.end(7, "batch").over("batch").wait(2 * time.Minute).see("batch")
		}, verdict.Fail},
		"reads the batch too early":     {func(t *trace) { t.see("batch").wait(time.Second).end(7, "batch").over("batch") }, verdict.Fail},
		"session ends before the batch": {func(t *trace) { t.end(7, "batch") }, verdict.NotTested},
		"reads one job of two": {func(t *trace) {
			t.end(7, "batch").end(8, "batch").over("batch").send(poll(7, final))
		}, verdict.Fail},
		"reads a bulk operation":  {func(t *trace) { t.end(7, "batch", "bulk").over("bulk").see("bulk") }, verdict.OK},
		"reads its bulk item":     {func(t *trace) { t.end(7, "batch", "bulk").over("bulk").see("bulk/" + id(7)) }, verdict.OK},
		"reads another bulk item": {func(t *trace) { t.end(7, "bulk").over("bulk").see("bulk/" + id(8)) }, verdict.Fail},
		"answers the webhook of the batch": {func(t *trace) {
			t.end(7, "batch").over("batch").deliver(7)
			a := &t.Attempts[len(t.Attempts)-1]
			a.JobID, a.Event, a.Final = "batch", "batch.completed", true
		}, verdict.OK},
		"sees the end on a long stream": {func(t *trace) {
			x := stream("", "e1")
			x.Final, x.Start = []string{id(7)}, t.now
			t.end(7).wait(10 * time.Minute)
			x.End = t.now
			t.Exchanges = append(t.Exchanges, x)
		}, verdict.OK},
		"sees more jobs than are recorded": {func(t *trace) {
			x := stream("", "e1")
			x.More, x.Start = true, t.now
			t.wait(time.Second).end(7)
			x.End = t.wait(time.Second).now
			t.Exchanges = append(t.Exchanges, x)
		}, verdict.NotTested},
		"leaves before the job ends":                {func(t *trace) { t.wait(2 * time.Hour).end(7) }, verdict.NotTested},
		"may learn of the end in an unrecorded way": {func(t *trace) { t.end(7); t.Elsewhere = true }, verdict.NotTested},
	} {
		trace := newTrace().send(many)
		c.does(trace)
		require.Equal(t, c.status, trace.result("outcome-learned").Status, name)
	}
	trace := newTrace().send(many).end(7, "batch").over("batch")
	e := trace.result("outcome-learned").Evidence[0]
	require.Equal(t, "Job job-7 of batch batch SUCCEEDED at 12:00:00; the client never learned this.", e.Found)
}

// If the client never learned of the end, the evidence shows its last read of the job, or else of the batch.
func TestLastReadIsEvidence(t *testing.T) {
	t.Parallel()
	last := func(t *trace) *verdict.Moment { return t.result("outcome-learned").Evidence[0].Request }
	require.Nil(t, last(newTrace().send(submit(7)).send(poll(8)).end(7)))

	polled := last(newTrace().send(submit(7)).send(poll(7)).wait(time.Second).send(poll(7, unavailable)).send(poll(8)).end(7))
	require.NotNil(t, polled)
	require.Equal(t, "GET /v1/jobs/job-7", polled.Request)
	require.Equal(t, "503 UNAVAILABLE, Retry-After: 2", polled.Answer)
	require.Equal(t, `503 {"status":503}`, polled.Fault)

	ofBatch := last(newTrace().send(submit(7)).see("batch").wait(time.Second).end(7, "batch").over("batch"))
	require.Equal(t, "GET /v1/batches/batch", ofBatch.Request)
}

func again(of, n byte) verdict.Exchange {
	return submit(of, func(x *verdict.Exchange) {
		x.Key, x.Made, x.Job, x.Shown = "again "+id(n), id(n), id(n), []string{id(n)}
	})
}

func (t *trace) as(state string) *trace {
	t.Runs[len(t.Runs)-1].State = state
	return t
}

func (t *trace) reset() *trace {
	return t.send(verdict.Exchange{Method: "POST", Path: "/v1/testbed/reset", Role: verdict.Reset, Status: 200, Reused: true})
}

// A client may submit a job again after it saw the job fail, or after a reset. It must not do so if the job succeeded or was never read.
func TestIntentions(t *testing.T) {
	t.Parallel()
	cancel := func(n byte, key string) verdict.Exchange { return cancel(n, func(x *verdict.Exchange) { x.Key = key }) }
	lostOne := submit(7, lost)
	for name, c := range map[string]struct {
		rule, status string
		does         func(*trace)
	}{
		"submits a failed job again": {"one-job-per-intention", "ok", func(t *trace) {
			t.send(submit(7)).end(7).as("FAILED").send(poll(7, final)).send(again(7, 8)).send(again(7, 8))
		}},
		"submits a canceled job again": {"one-job-per-intention", "not_tested", func(t *trace) {
			t.send(submit(7)).end(7).as("CANCELED").send(poll(7, final)).send(again(7, 8))
		}},
		"submits a failed job again twice": {"one-job-per-intention", "fail", func(t *trace) {
			t.send(submit(7)).end(7).as("FAILED").send(poll(7, final)).send(again(7, 8)).send(again(7, 9))
		}},
		"submits a successful job again": {"one-job-per-intention", "fail", func(t *trace) {
			t.send(submit(7)).end(7).send(poll(7, final)).send(again(7, 8))
		}},
		"submits a failed job again without reading it": {"one-job-per-intention", "fail", func(t *trace) {
			t.send(submit(7)).end(7).as("FAILED").send(again(7, 8)).send(poll(7, final))
		}},
		"submits the same job after a reset": {"one-job-per-intention", "not_tested", func(t *trace) {
			t.send(submit(7)).reset().send(again(7, 8))
		}},
		"uses one key for two jobs": {"one-job-per-intention", "fail", func(t *trace) { t.send(submit(7)).send(keyOf(8, 7)) }},
		"reuses a key after a reset": {"same-body", "not_tested", func(t *trace) {
			t.send(submit(7)).reset().send(submit(8, func(x *verdict.Exchange) { x.Key = "key 7" }))
		}},
		"reuses a correlation id after a reset": {"correlation-ids", "ok", func(t *trace) {
			t.send(submit(7)).reset().send(submit(8, func(x *verdict.Exchange) { x.Correlation = "order-7" }))
		}},
		"reuses a correlation id": {"correlation-ids", "warn", func(t *trace) {
			t.send(submit(7)).send(submit(8, func(x *verdict.Exchange) { x.Correlation = "order-7" }))
		}},
		"submits a lost and failed job again after reading it": {"idempotency-key", "not_tested",
			func(t *trace) { t.send(lostOne).end(7).as("FAILED").send(poll(7, final)).send(again(7, 8)) }},
		"submits a lost and failed job again without reading it": {"idempotency-key", "fail", func(t *trace) {
			t.send(lostOne).end(7).as("FAILED").send(again(7, 8))
		}},
		"cancels three jobs with one key": {"same-body", "fail", func(t *trace) {
			t.each(3, func(n byte) { t.send(cancel(n, "one")) })
		}},
		"cancels one job three times":    {"same-body", "not_tested", func(t *trace) { t.each(3, func(byte) { t.send(cancel(1, "one")) }) }},
		"cancels a job with its own key": {"same-body", "not_tested", func(t *trace) { t.send(submit(1)).send(cancel(1, "key 1")) }},
		"cancels at the target of a redirect": {"same-body", "not_tested", func(t *trace) {
			moved := cancel(1, "one")
			moved.Status, moved.Path = 308, "/old"
			t.send(moved).send(cancel(1, "one"))
		}},
		"submits to two paths with one key": {"same-body", "fail", func(t *trace) {
			t.send(submit(7)).send(submit(7, func(x *verdict.Exchange) { x.Path = "/v1/jobs/elsewhere" }))
		}},
	} {
		trace := newTrace()
		c.does(trace)
		require.Equal(t, verdict.Status(c.status), trace.result(c.rule).Status, name)
	}
}

func keyOf(n, other byte) verdict.Exchange {
	return submit(other, func(x *verdict.Exchange) { x.Correlation = "order-" + id(n) })
}

// A client that reads an unknown state must continue, unless another member shows that the job ended.
func TestUnknownStates(t *testing.T) {
	t.Parallel()
	pondering := with(&fault.Effect{JobStatus: "PONDERING"})
	ended := func(x *verdict.Exchange) { x.MaybeFinal = []string{x.Job} }
	for name, c := range map[string]struct {
		does   func(*trace)
		status verdict.Status
	}{
		"continues until the session ends":    {func(t *trace) { t.send(poll(7, pondering)).send(poll(7)) }, verdict.OK},
		"sees the end in a member, stops":     {func(t *trace) { t.end(7).send(poll(7, pondering, ended)) }, verdict.NotTested},
		"sees the end in a member, continues": {func(t *trace) { t.end(7).send(poll(7, pondering, ended)).send(poll(7, final)) }, verdict.OK},
		"stops before another response":       {func(t *trace) { t.send(poll(7, pondering)).end(7).send(poll(8, ended)) }, verdict.Fail},
		"leaves before the job ends":          {func(t *trace) { t.send(poll(7, pondering)).wait(2 * time.Hour).end(7) }, verdict.NotTested},
		"polls other jobs instead": {func(t *trace) {
			t.send(poll(8)).send(poll(7, pondering)).each(4, func(byte) { t.wait(time.Second).send(poll(8)) })
			t.wait(2 * time.Hour).end(7)
		}, verdict.Fail},
		"polls other jobs, and leaves early": {func(t *trace) {
			t.send(poll(8)).wait(time.Second).send(poll(8)).send(poll(7, pondering)).wait(2 * time.Hour).end(7)
		}, verdict.NotTested},
		"polls other jobs, and follows the events of this one": {func(t *trace) {
			t.send(poll(8)).hear(7).send(poll(7, pondering)).each(4, func(byte) { t.wait(time.Second).send(poll(8)) })
			t.wait(2 * time.Hour).end(7)
		}, verdict.NotTested},
		"learns of the end from a webhook": {func(t *trace) {
			t.send(poll(7, pondering)).end(7).deliver(7)
			t.Attempts[0].Final = true
		}, verdict.OK},
	} {
		trace := newTrace().send(submit(7))
		c.does(trace)
		require.Equal(t, c.status, trace.result("tolerant-reader").Status, name)
	}
	trace := newTrace().send(submit(7)).end(7).send(poll(7, pondering, ended))
	require.Equal(t, verdict.NotTested, trace.result("outcome-learned").Status, "another member may have shown the end")
}
