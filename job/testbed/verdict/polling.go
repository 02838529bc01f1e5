package verdict

import (
	"fmt"
	"time"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

const reread = "getJob" // the operation by which jobs are polled

// retryAfter: a read that was told when to come again is not repeated earlier. One that found the job final was not a poll: the
// client may have learned of its end otherwise.
func retryAfter(r *Record, f *finding) {
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if x.RetryAfter == nil || !x.Arrived() || x.Status != 200 || len(x.Final) > 0 {
			return
		}
		y := next(x, later, func(y *testbed.Exchange) bool { return sameRead(x, y) })
		if y == nil || y.Start.Sub(x.End) < tells(x)-Tolerance && (len(y.Final) > 0 || y.Status >= 300 && y.Status != 304) {
			return
		}
		waited := y.Start.Sub(x.End)
		f.judge(waited >= tells(x)-Tolerance, x, "The same again "+after(waited)+".",
			fmt.Sprintf("To wait for the %d s that Retry-After says.", *x.RetryAfter))
	})
}

// stopAtEnd: a job that was seen final is not polled any more, unless it was retried.
func stopAtEnd(r *Record, f *finding) {
	judged := map[job.ID]bool{}
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if x.Operation != reread || !shows(x, x.Job) || judged[x.Job] {
			return
		}
		judged[x.Job] = true
		again := 0
		for i := range later {
			y := &later[i]
			if y.Operation == "retryJob" && y.Job == x.Job {
				return
			}
			if y.Start.After(x.End) && sameRead(x, y) && shows(y, x.Job) {
				again++
			}
		}
		f.judge(again <= MaxRereads, x, fmt.Sprintf("%d more reads of the finished job.", again), "To stop: a final state does not change.")
	})
}

// conditional: a poll of what was seen with an ETag names it. One that does not may come from elsewhere in the client.
func conditional(r *Record, f *finding) {
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if x.Operation != reread || !x.Arrived() || x.Disturbed() || x.ETag == "" || x.Status != 200 || len(x.Final) > 0 {
			return
		}
		y := next(x, later, func(y *testbed.Exchange) bool { return sameRead(x, y) })
		if y == nil || len(y.Final) > 0 && y.IfNoneMatch == "" {
			return
		}
		f.judge(y.IfNoneMatch != "", y, fmt.Sprintf("If-None-Match: %q.", y.IfNoneMatch),
			"If-None-Match: "+x.ETag+", so that 304 can be the answer.")
	})
}

// backoff: whoever is told 429 or 503 comes again when told, or without being told not at once time after time.
func backoff(r *Record, f *finding) {
	hasty := map[string]int{} // consecutive repetitions at once
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if !x.Arrived() || x.Status != 429 && x.Status != 502 && x.Status != 503 {
			return
		}
		y := next(x, later, func(y *testbed.Exchange) bool { return repeats(x, y) })
		if y == nil {
			return
		}
		waited := y.Start.Sub(x.End)
		if x.RetryAfter != nil {
			f.judge(waited >= tells(x)-Tolerance, x, "The same again "+after(waited)+".",
				fmt.Sprintf("To wait for the %d s that Retry-After says.", *x.RetryAfter))
			return
		}
		at := x.Method + x.Path + x.Body
		if hasty[at]++; waited >= 50*time.Millisecond {
			hasty[at] = 0
		}
		f.judge(hasty[at] < 3, x, fmt.Sprintf("The same again %s, %d times in a row.", after(waited), hasty[at]), "To wait longer each time.")
	})
}

// tolerant: an answer or event with members, states or types that the client does not know does not stop it.
func tolerant(r *Record, f *finding) {
	r.each(func(x *testbed.Exchange, later []testbed.Exchange) {
		if x.Fault == nil || !x.Fault.Rewrites() || !x.Arrived() || x.Status >= 400 || !r.over(x.End) {
			return
		}
		for _, id := range x.Shown {
			learned := r.learned(id, x.ServiceEnd())
			f.judge(learned, x, either(learned, "The client went on, and learned what became of the job.",
				"The client learned nothing more of job "+id.String()+"."),
				"To ignore unknown members, to take an unknown state for one that is not final, and to go on.")
		}
		if len(x.Final) > 0 && len(later) > 0 {
			f.hold(x, "The client went on.")
		}
	})
}

// timeouts: a client does not wait for ever.
func timeouts(r *Record, f *finding) {
	r.each(func(x *testbed.Exchange, _ []testbed.Exchange) {
		if x.Fault == nil || time.Duration(x.Fault.Delay) < WaitAtMost {
			return
		}
		took := after(x.End.Sub(x.Start))
		f.judge(x.HungUp, x, either(x.HungUp, "The client gave up ", "The client had its answer ")+took+".",
			fmt.Sprintf("A time-out of less than %.0f s.", WaitAtMost.Seconds()))
	})
}
