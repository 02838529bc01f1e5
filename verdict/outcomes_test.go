package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// result returns what a session has shown about one rule.
func (t *trace) result(rule string) (found verdict.Result) {
	for _, r := range t.judge().Results {
		if r.Rule == rule {
			found = r
		}
	}
	return found
}

// end lets a job end now, as part of batches and bulk operations.
func (t *trace) end(n byte, groups ...string) *trace {
	run := verdict.Run{ID: id(n), State: "SUCCEEDED", Finished: t.now, Groups: groups}
	if len(groups) > 0 {
		run.Batch = groups[0]
	}
	t.Runs = append(t.Runs, run)
	return t
}

// over lets a batch or a bulk operation end now.
func (t *trace) over(group string) *trace {
	if t.Groups == nil {
		t.Groups = map[string]time.Time{}
	}
	t.Groups[group] = t.now
	return t
}

// see adds a request whose answer shows that something has ended.
func (t *trace) see(what string) *trace {
	return t.send(verdict.Exchange{Method: "GET", Path: "/v1/batches/" + what, Status: 200, Job: what, Final: []string{what}, Reused: true})
}

// A client learns of a job's end by the end of what the job is part of, and has a minute from that on.
func TestOutcomesOfGroups(t *testing.T) {
	t.Parallel()
	many := submit(7, func(x *verdict.Exchange) {
		x.Role, x.Path, x.Made, x.Shown = verdict.SubmitMany, "/v1/jobs/batch", "batch", []string{id(7), id(8)}
	})
	for name, c := range map[string]struct {
		does   func(*trace)
		status verdict.Status
	}{
		"reads the batch":                  {func(t *trace) { t.end(7, "batch").end(8, "batch").over("batch").see("batch") }, verdict.OK},
		"reads it when the slow job ended": {func(t *trace) { t.end(7, "batch").wait(5*time.Minute).end(8, "batch").over("batch").see("batch") }, verdict.OK},
		"reads it before its outcome":      {func(t *trace) { t.end(7, "batch").end(8, "batch").see("batch").over("batch") }, verdict.OK},
		"reads it too late":                {func(t *trace) { t.end(7, "batch").over("batch").wait(2 * time.Minute).see("batch") }, verdict.Fail},
		"reads it before the end":          {func(t *trace) { t.see("batch").wait(time.Second).end(7, "batch").over("batch") }, verdict.Fail},
		"never reads it":                   {func(t *trace) { t.end(7, "batch").end(8, "batch").over("batch") }, verdict.Fail},
		"ends before its batch":            {func(t *trace) { t.end(7, "batch") }, verdict.NotTested},
		"reads one job of two":             {func(t *trace) { t.end(7, "batch").end(8, "batch").over("batch").send(poll(7, final)) }, verdict.Fail},
		"reads a bulk operation":           {func(t *trace) { t.end(7, "batch", "bulk").over("bulk").see("bulk") }, verdict.OK},
		"reads its item":                   {func(t *trace) { t.end(7, "batch", "bulk").over("bulk").see("bulk/" + id(7)) }, verdict.OK},
		"reads another item":               {func(t *trace) { t.end(7, "bulk").over("bulk").see("bulk/" + id(8)) }, verdict.Fail},
		"has its webhook answered": {func(t *trace) {
			t.end(7, "batch").over("batch").deliver(7)
			a := &t.Attempts[len(t.Attempts)-1]
			a.JobID, a.Event, a.Final = "batch", "batch.completed", true
		}, verdict.OK},
		"hears it on a stream that lasts": {func(t *trace) {
			x := stream("", "e1")
			x.Final, x.Start = []string{id(7)}, t.now
			t.end(7).wait(10 * time.Minute)
			x.End = t.now
			t.Exchanges = append(t.Exchanges, x)
		}, verdict.OK},
		"hears more than is recorded": {func(t *trace) {
			x := stream("", "e1")
			x.More, x.Start = true, t.now
			t.wait(time.Second).end(7)
			x.End = t.wait(time.Second).now
			t.Exchanges = append(t.Exchanges, x)
		}, verdict.NotTested},
		"goes when the job has not ended": {func(t *trace) { t.wait(2 * time.Hour).end(7) }, verdict.NotTested},
		"reads a stream of its own":       {func(t *trace) { t.end(7); t.Elsewhere = true }, verdict.NotTested},
	} {
		trace := newTrace().send(many)
		c.does(trace)
		require.Equal(t, c.status, trace.result("outcome-learned").Status, name)
	}
	trace := newTrace().send(many).end(7, "batch").over("batch")
	e := trace.result("outcome-learned").Evidence[0]
	require.Equal(t, "Job job-7 of batch batch SUCCEEDED at 12:00:00; the client never read its end.", e.Found)
}
