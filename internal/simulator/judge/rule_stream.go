package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkStreams: a stream that was read completely has each event of the job's log once, in order. Others have no event twice.
func (c *checker) checkStreams() {
	if c.tenant < 0 {
		return
	}
	for _, s := range c.run.Streams {
		if s.Tenant != c.tenant {
			continue
		}
		var events []*history.Fact
		for _, f := range c.byKind[history.Streamed] {
			if f.Tenant == s.Tenant && f.Event != nil && f.Event.Name != "job.progress" {
				events = append(events, f)
			}
		}
		if s.Whole || len(events) > 0 {
			c.checkStream(s, events)
		}
	}
}

// checkStream follows one stream. The end of an attempt has no seq in it; it is the next one.
func (c *checker) checkStream(s Stream, events []*history.Fact) {
	next := count(s.Whole)    // 0: unknown
	ends := map[string]bool{} // name and attempt
	for _, f := range events {
		e, name := f.Event, f.Event.Name
		switch {
		case e.Seq > 0:
			c.must(next == 0 || e.Seq >= next, streamed, "event %d (%s) came again, or after a later one", e.Seq, name)
			c.must(!s.Whole || e.Seq <= next, streamed, "event %d (%s) came, and not event %d before it", e.Seq, name, next)
			c.must(name != nameEmitted || c.emits(e.Emitted), streamed,
				"event %d (%s) is %q, which the client did not ask for", e.Seq, name, e.Emitted)
			next = e.Seq
		case endsAttempt(name):
			c.must(!ends[fmt.Sprint(name, e.Attempt)], streamed, "%s of attempt %d came twice", name, e.Attempt)
			c.must(e.Status == "" || c.hasStatus(name, e.Attempt, e.Status), streamed,
				"%s of attempt %d has jobStatus %s", name, e.Attempt, e.Status)
			ends[fmt.Sprint(name, e.Attempt)] = true
		default:
			c.must(false, streamed, "%s came without a seq", name)
			continue
		}
		wrong := c.wrongScenario(e.Scenario)
		c.must(wrong == "", streamed, "%s of attempt %d has %s", name, e.Attempt, wrong)
		if next > 0 {
			c.checkStreamed(f, name, next)
			next++
		}
	}
	switch j := c.job; {
	case s.Whole && c.logComplete:
		c.must(next > len(c.log), streamed, "the stream ends before event %d of %d", next, len(c.log))
	case s.Whole && j != nil && final(j.State):
		c.must(ends[fmt.Sprint(eventName(running, j.State), j.Attempt)], streamed,
			"the stream does not show that attempt %d ended as %s", j.Attempt, j.State)
	}
}

// hasStatus: the event and the attempt's report require this jobStatus.
func (c *checker) hasStatus(name string, attempt int, status string) bool {
	if r := c.reports[attempt]; r != nil {
		return status == statusOf(name, r.Failure)
	}
	return status == statusOf(name, "") || status == statusOf(name, codeTimeout)
}

// checkStreamed compares an event of a stream with the log.
func (c *checker) checkStreamed(f *history.Fact, name string, seq int) {
	if len(c.log) == 0 || !c.logComplete {
		return
	}
	if seq > len(c.log) {
		c.must(false, streamed, "%s came as event %d, the log has only %d", name, seq, len(c.log))
		return
	}
	e := c.log[seq-1]
	same := e.Name == name && e.Attempt == f.Event.Attempt && (f.Event.ID == "" || f.Event.ID == e.ID)
	c.must(same, streamed, "%s of attempt %d came as event %d, which is %s of attempt %d", name, f.Event.Attempt, seq, e.Name, e.Attempt)
	c.must(!same || !c.run.latest(f.At).Before(e.At), streamed, "event %d (%s) came %s before it happened",
		seq, name, e.At.Sub(c.run.serviceTime(f.At)))
}
