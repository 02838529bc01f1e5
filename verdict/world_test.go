package verdict_test

import (
	"cmp"
	"fmt"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

var begin = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

type trace struct {
	verdict.Record
	Exchanges []verdict.Exchange
	now       time.Time
}

func (t *trace) judge() verdict.Verdict {
	t.Log = &verdict.Log{}
	for _, x := range t.Exchanges {
		t.Log.Add(&x)
	}
	return verdict.Of(&t.Record)
}

func newTrace() *trace {
	ended := begin.Add(time.Hour)
	return &trace{now: begin, Record: verdict.Record{
		Now:     ended,
		API:     ours,
		Session: verdict.Session{ID: id(0), Rules: verdict.IDs(), CreatedAt: fault.Time(begin), EndedAt: fault.TimeOf(&ended)},
	}}
}

func rulesFor(standards bool) []verdict.Result {
	t := newTrace()
	t.Standards = standards
	return t.judge().Results
}

func id(n byte) string { return fmt.Sprintf("job-%d", n) }

var ours = fault.API{Operations: map[fault.Use][]string{
	fault.Submissions: {"submit"}, fault.Lookups: {"read"}, fault.Outcomes: {"result"}, fault.Streams: {"events"},
}}

func (t *trace) wait(d time.Duration) *trace {
	t.now = t.now.Add(d)
	return t
}

func (t *trace) send(x verdict.Exchange) *trace {
	t.wait(time.Millisecond)
	x.Start = t.now
	t.wait(10*time.Millisecond + time.Duration(faultOf(x).Delay))
	x.End = t.now
	if x.KeyID == "" {
		x.KeyID = "k1"
	}
	t.Exchanges = append(t.Exchanges, x)
	return t
}

func faultOf(x verdict.Exchange) fault.Effect {
	if x.Fault == nil {
		return fault.Effect{}
	}
	return *x.Fault
}

func submit(n byte, change ...func(*verdict.Exchange)) verdict.Exchange {
	x := verdict.Exchange{
		Method: "POST", Path: "/v1/jobs", Operation: "submit", Role: verdict.Submit, Status: 202, Made: id(n), Job: id(n), Reused: true,
		Key: fmt.Sprintf("key %d", n), Body: fmt.Sprintf("body %d", n), Correlation: fmt.Sprintf("order-%d", n), ContentType: "application/json",
		Shown: []string{id(n)},
	}
	for _, c := range change {
		c(&x)
	}
	return x
}

func poll(n byte, change ...func(*verdict.Exchange)) verdict.Exchange {
	one := 1
	x := verdict.Exchange{
		Method: "GET", Path: "/v1/jobs/" + id(n), Operation: "read", Role: verdict.Read, Status: 200, Job: id(n), RetryAfter: &one, ETag: `"1"`,
		Shown: []string{id(n)}, Reused: true,
	}
	for _, c := range change {
		c(&x)
	}
	return x
}

func list(n byte) verdict.Exchange {
	return poll(n, func(x *verdict.Exchange) {
		x.Path, x.Query, x.Role, x.RetryAfter, x.ETag = "/v1/jobs", "limit=20", verdict.List, nil, ""
	})
}

func stream(last string, ids ...string) verdict.Exchange {
	return verdict.Exchange{
		Method: "GET", Path: "/v1/events", Operation: "events", Role: verdict.Stream, Status: 200, LastEventID: last, Reused: true,
		Stream: &verdict.Part{Events: len(ids), IDs: ids},
	}
}

func lost(x *verdict.Exchange)        { x.Fault = &fault.Effect{Close: fault.AfterCommit} }
func conditional(x *verdict.Exchange) { x.IfNoneMatch = `"1"` }
func final(x *verdict.Exchange)       { x.Final, x.Shown, x.RetryAfter = []string{x.Job}, nil, nil }

func unavailable(x *verdict.Exchange) {
	two := 2
	x.Status, x.Code, x.RetryAfter, x.Fault = 503, "UNAVAILABLE", &two, &fault.Effect{Status: 503}
	x.Made, x.Shown, x.Final, x.ETag = "", nil, nil, ""
}

func with(f *fault.Effect) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { x.Fault = f }
}

// The trace exercises every rule.
func right() *trace {
	t := newTrace()
	t.send(submit(1, lost)).wait(time.Second).send(submit(1))
	t.send(submit(2, unavailable)).wait(2 * time.Second).send(submit(2))
	t.send(poll(1)).wait(time.Second).send(poll(1, conditional, with(&fault.Effect{Extensions: true})))
	t.wait(time.Second).send(poll(1, conditional, final))
	t.send(poll(2, unavailable)).wait(2 * time.Second).send(poll(2)).wait(time.Second).send(poll(2, conditional, final))
	t.send(submit(3)).wait(time.Second).send(poll(3, final)).send(submit(4)).wait(time.Second).send(poll(4, final))
	t.send(poll(5, func(x *verdict.Exchange) {
		x.Path, x.Operation, x.Role, x.Status, x.Fault = "/v1/limits", "", "", 308, &fault.Effect{Moved: 308}
	}))
	t.send(poll(5, func(x *verdict.Exchange) { x.Path, x.Operation, x.Role = "/v1/limits", "", "" }))
	half := cut(stream("", "e1", "e2"))
	half.Stream.Half = "e3"
	t.send(half).wait(time.Second).send(stream("e2", "e3"))
	t.send(list(1)).wait(time.Second).send(list(1))
	t.send(poll(1, func(x *verdict.Exchange) {
		x.Path, x.HungUp, x.Fault = "/v1/jobs", true, &fault.Effect{Delay: fault.Duration(40e9)}
	}))
	t.Expiries = map[string]time.Time{"k1": t.now.Add(time.Second)}
	t.wait(2 * time.Second).send(poll(5, func(x *verdict.Exchange) {
		x.KeyID, x.Path, x.Operation, x.Role = "k2", "/v1/jobs", "list", verdict.List
	}))
	t.each(3, func(byte) { t.wait(2 * time.Second).send(cancel(4, unavailable)) })
	at := func(x *verdict.Exchange) { x.Host = "a.example" }
	t.wait(2 * time.Second).send(poll(4, final, at, leads("http://b.example/v1/jobs/job-4"))).wait(time.Second).send(poll(4, final, at))
	for n := byte(1); n <= 4; n++ {
		t.Runs = append(t.Runs, verdict.Run{ID: id(n), State: "SUCCEEDED", Finished: begin.Add(time.Second)})
	}
	t.Runs[2].Permanent = true
	t.attempt(verdict.Attempt{JobID: id(1), Number: 1, Event: "job.succeeded", Final: true, Took: time.Second, Status: 200})
	return t.sent(fault.Effect{Tamper: fault.TamperBody}, 401).sent(fault.Effect{Repeat: 1}, 204)
}

func cancel(n byte, change ...func(*verdict.Exchange)) verdict.Exchange {
	x := verdict.Exchange{Method: "POST", Path: "/v1/jobs/" + id(n) + "/cancel", Status: 200, Job: id(n), Reused: true}
	for _, c := range change {
		c(&x)
	}
	return x
}

func leads(to string) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) {
		x.Status, x.Location, x.Fault = 307, to, &fault.Effect{Moved: 307, OtherHost: true}
		x.Shown, x.Final, x.RetryAfter, x.ETag = nil, nil, nil, ""
	}
}

func (t *trace) sent(e fault.Effect, status int) *trace {
	return t.send(verdict.Exchange{Method: "POST", Role: verdict.Delivery, Delivery: id(9), Number: 2, Status: status, Fault: &e})
}

func (t *trace) attempt(a verdict.Attempt) *trace {
	a.DeliveryID, a.At = cmp.Or(a.DeliveryID, id(9)), t.now
	t.Attempts = append(t.Attempts, a)
	return t
}

func statuses(v verdict.Verdict) (broken, missing []string) {
	for _, r := range v.Results {
		switch r.Status {
		case verdict.Warn, verdict.Fail:
			broken = append(broken, r.Rule)
		case verdict.NotTested:
			missing = append(missing, r.Rule)
		}
	}
	return broken, missing
}
