package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Many immediate repetitions of a failed request are a storm, whatever the failure. Few repetitions, repetitions with pauses, and
// different requests are not.
func TestStorms(t *testing.T) {
	t.Parallel()
	bare := func(x *verdict.Exchange) { x.Key, x.Correlation, x.Job, x.Made, x.Shown = "", "", "", "", nil }
	status := func(status int) func(*verdict.Exchange) {
		return func(x *verdict.Exchange) { x.Status, x.Made, x.Job, x.Shown, x.RetryAfter = status, "", "", nil, nil }
	}
	undescribed := func(x *verdict.Exchange) { x.Role, x.Body = "", "" }
	reset := with(&fault.Effect{Close: fault.CloseBefore, Reset: true})
	many := func(x verdict.Exchange) func(*trace) {
		return func(t *trace) { t.each(200, func(byte) { t.send(x) }) }
	}
	for name, c := range map[string]struct {
		does   func(*trace)
		broken bool // under the rules of any API
		ours   bool // under our rules
	}{
		"after 500":                {many(submit(7, status(500))), true, true},
		"after 503":                {many(submit(7, status(503))), true, true},
		"after 504 without a key":  {many(submit(7, status(504), bare)), true, true},
		"after a reset connection": {many(submit(7, reset, bare)), true, true},
		"after lost answers":       {many(submit(7, lost)), true, true},
		"with a new key for each": {func(t *trace) {
			t.each(200, func(n byte) { t.send(submit(7, lost, func(x *verdict.Exchange) { x.Key = id(n) })) })
		}, true, true},
		"of an undescribed request": {many(submit(7, status(500), bare, undescribed)), true, true},
		"of reads":                  {many(poll(7, status(500))), true, true},
		"after 409":                 {many(submit(7, status(409))), true, false},
		"after 404 of a read":       {many(poll(7, status(404))), false, false},
		"after successes":           {many(submit(7)), false, false},
		"with pauses": {func(t *trace) {
			t.each(50, func(byte) { t.wait(100 * time.Millisecond).send(submit(7, status(500))) })
		}, false, false},
		"of four tries":       {func(t *trace) { t.each(4, func(byte) { t.send(submit(7, status(500))) }) }, false, true},
		"of three tries":      {func(t *trace) { t.each(3, func(byte) { t.send(submit(7, status(500))) }) }, false, false},
		"of different orders": {func(t *trace) { t.each(50, func(n byte) { t.send(submit(n, status(500))) }) }, false, false},
		"of time-outs": {many(submit(7, with(&fault.Effect{Delay: fault.Duration(time.Second)}),
			func(x *verdict.Exchange) { x.HungUp = true })), false, false},
		"of overlapping requests": {func(t *trace) {
			t.each(50, func(byte) {
				t.send(submit(7, status(500), bare))
				last := &t.Exchanges[len(t.Exchanges)-1]
				last.End = last.End.Add(time.Minute)
			})
		}, false, false},
	} {
		for _, standards := range []bool{true, false} {
			trace := newTrace()
			trace.Standards = standards
			c.does(trace)
			r := trace.result("backoff")
			want := map[bool]bool{true: c.broken, false: c.ours}[standards]
			require.Equal(t, want, r.Status == verdict.Warn || r.Status == verdict.Fail, "%s, of any API: %v: %+v", name, standards, r)
			if want && standards {
				require.Equal(t, verdict.Should, r.Level)
				require.Contains(t, r.Evidence[0].Found, "The client sent the same request 200 times in 2.2 s, each time immediately after a failure.")
			}
		}
	}
}
