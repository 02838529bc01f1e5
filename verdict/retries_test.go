package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// A client is judged by the final result of a submission, not by each try.
func TestOrdersThatAreGivenUp(t *testing.T) {
	t.Parallel()
	reset := with(&fault.Effect{Close: fault.CloseBefore, Reset: true})
	nothing := func(x *verdict.Exchange) { x.Made, x.Job, x.Shown = "", "", nil }
	slow := with(&fault.Effect{Delay: fault.Duration(500 * time.Millisecond)})
	hungUp := func(x *verdict.Exchange) {
		nothing(x)
		x.HungUp, x.Fault = true, &fault.Effect{Delay: fault.Duration(300 * time.Millisecond)}
	}
	tries := func(n byte, changes ...func(*verdict.Exchange)) func(*trace) {
		return func(t *trace) {
			for _, change := range changes {
				t.wait(3 * time.Second).send(submit(n, change))
			}
		}
	}
	both := func(all ...func(*trace)) func(*trace) {
		return func(t *trace) {
			for _, does := range all {
				does(t)
			}
		}
	}
	asks := func(x verdict.Exchange) func(*trace) { return func(t *trace) { t.wait(time.Second).send(x) } }
	made := func(*verdict.Exchange) {}
	persists := tries(8, unavailable, made)
	for name, c := range map[string]struct {
		does   func(*trace)
		status verdict.Status
	}{
		"retries until success":          {tries(7, unavailable, unavailable, reset, made), verdict.OK},
		"retries until refused":          {tries(7, unavailable, func(x *verdict.Exchange) { nothing(x); x.Status = 422 }), verdict.OK},
		"never retries":                  {both(tries(7, unavailable), tries(9, made)), verdict.NotTested},
		"retries one, drops another":     {both(tries(7, unavailable), persists), verdict.Warn},
		"retries one, lists for another": {both(persists, tries(7, unavailable), asks(list(9))), verdict.Warn},
		"gives up after two tries":       {tries(7, unavailable, unavailable), verdict.Warn},
		"gives up after three tries":     {tries(7, unavailable, unavailable, unavailable), verdict.NotTested},
		"has one time-out for three tries": {both(tries(9, slow), tries(7, unavailable, unavailable, hungUp), tries(8, made)),
			verdict.Warn},
		"hangs up on its last request":           {both(tries(9, slow), tries(7, unavailable, unavailable, hungUp)), verdict.NotTested},
		"has a time-out for each of three tries": {tries(7, hungUp, hungUp, hungUp), verdict.NotTested},
		"ignores a lost response":                {tries(7, lost), verdict.Warn},
		"ignores a reset connection":             {tries(7, both2(reset, nothing)), verdict.Warn},
		"reads a list after a reset":             {both(tries(7, both2(reset, nothing)), asks(list(9))), verdict.NotTested},
		"reads a list without the job":           {both(tries(7, lost), asks(list(9))), verdict.Warn},
		"retries before the end of the first try is recorded": {func(t *trace) {
			tries(7, both2(reset, nothing))(t)
			t.Exchanges[0].End = t.now.Add(20 * time.Millisecond)
			t.send(submit(7))
		}, verdict.NotTested},
		"finds the job in a list": {both(tries(7, lost), asks(list(7))), verdict.NotTested},
	} {
		trace := newTrace()
		c.does(trace)
		r := trace.result("retry-only-retryable")
		require.Equal(t, c.status, r.Status, "%s: %+v", name, r)
		if name == "gives up after three tries" {
			require.Equal(t, "the client gave up on a submission after three tries or more", r.Reason)
		}
	}
}

func both2(one, other func(*verdict.Exchange)) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { one(x); other(x) }
}

// No rule blames a client that gives up on a submission in an outage. A client that submits the job again with a new key is blamed.
func TestOutages(t *testing.T) {
	t.Parallel()
	const ok, warn, fail, not = verdict.OK, verdict.Warn, verdict.Fail, verdict.NotTested
	newKey := func(x *verdict.Exchange) { x.Key = "new" }
	for name, c := range map[string]struct {
		does func(*trace)
		want map[string]verdict.Status
	}{
		"gives up after 500": {func(t *trace) { t.every(2*time.Second, 5, submit(7, refused(500))) }, map[string]verdict.Status{
			"retry-budget": ok, "idempotency-key": ok, "backoff": ok, "retry-only-retryable": not, "one-job-per-intention": not,
			"lost-answer": not, "outcome-learned": not, "no-duplicates": not,
		}},
		"gives up after one try without a response": {func(t *trace) { t.send(submit(7, unasked)) }, map[string]verdict.Status{
			"retry-only-retryable": warn, "retry-budget": not,
		}},
		"retries inside retries": {func(t *trace) {
			t.each(3, func(byte) { t.every(2*time.Second, 5, submit(7, refused(500))).wait(5 * time.Second) })
		}, map[string]verdict.Status{"retry-budget": warn, "idempotency-key": ok, "backoff": ok}},
		"submits the job again with a new key": {func(t *trace) {
			t.every(2*time.Second, 5, submit(7, refused(500))).wait(5 * time.Second).send(submit(7, newKey))
		}, map[string]verdict.Status{"idempotency-key": fail, "one-job-per-intention": ok, "retry-budget": not}},
	} {
		trace := newTrace()
		c.does(trace)
		for rule, want := range c.want {
			r := trace.result(rule)
			require.Equal(t, want, r.Status, "%s, %s: %+v", name, rule, r)
		}
	}
}
