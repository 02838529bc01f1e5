package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/simulator/history"
	"github.com/forgerun/forgerun/simulator/receiver"
	"github.com/forgerun/forgerun/simulator/report"
	"github.com/forgerun/forgerun/simulator/scenario"
)

// Options say what is driven against what.
type Options struct {
	// URL is the base address of the service. Key is one client's API key; without
	// it, tenants register themselves.
	URL, Key string
	// Run marks the jobs of this run: their correlation ids begin with it. Letters
	// and digits.
	Run      string
	Scenario *scenario.Scenario
	History  *history.Writer
	Recorder *report.Recorder
	// Receiver gets the webhooks; nil when the scenario has none.
	Receiver *receiver.Receiver
	// Patience is how long a submission, cancel or retry is repeated whose effect
	// is unknown. 0: 60 s.
	Patience time.Duration
	// RequestTimeout bounds one request. 0: 15 s.
	RequestTimeout time.Duration
	// Connections bounds those that are open at a time; requests beyond wait, and
	// their time counts. 0: 256.
	Connections int
	// Pending counts the deliveries that are not settled, if that is known without
	// asking each webhook for its own. May be nil.
	Pending func(context.Context) (int64, error)
	// Transport sends the short requests; nil: a quick one. For tests.
	Transport http.RoundTripper
}

// inFlight bounds the submissions on their way. Only a service that stands still
// for long makes that many wait; the generator then waits too, and latencies tell
// it, since they count from the intended time.
const inFlight = 4_096

// Engine drives one run. Its methods are called once each, in the order Prepare,
// Run, Drain, Close.
type Engine struct {
	o        Options
	accounts []*Account
	jobs     *jobs
	awaitEnd bool // closed loop: the next request comes after the job's end

	background sync.WaitGroup // streams
	stop       context.CancelFunc
	follows    sync.WaitGroup
	tickets    atomic.Int64 // the highest number sent
}

// New makes an engine.
func New(o Options) (*Engine, error) {
	if o.Patience == 0 {
		o.Patience = time.Minute
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 15 * time.Second
	}
	if o.Connections == 0 {
		o.Connections = 256
	}
	if o.Key != "" && o.Scenario.Tenants > 1 {
		return nil, errors.New("a scenario of several tenants registers them itself: leave --key out, or set its tenants to 1")
	}
	e := &Engine{o: o, awaitEnd: o.Scenario.Arrival.Closed != nil}
	e.jobs = newJobs(o.Recorder.Moved, func(j *job) { o.Recorder.Finished(j.intended, j.last, j.state) })
	return e, nil
}

// watched reports whether the ends of jobs are learned from streams.
func (e *Engine) watched() bool { return e.o.Scenario.Readers.Streams > 0 }

// Tickets tells how many submissions the plan has had so far.
func (e *Engine) Tickets() int64 { return e.tickets.Load() }

// Run sends the plan and returns when its last submission has been answered or
// given up, and the client's part in all jobs is played.
func (e *Engine) Run(ctx context.Context) error {
	plan := &sharedPlan{plan: e.o.Scenario.Plan()}
	began := time.Now()
	limit := ctx
	if d := e.o.Scenario.Duration; d > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithDeadline(ctx, began.Add(d))
		defer cancel()
	}
	if closed := e.o.Scenario.Arrival.Closed; closed != nil {
		e.runClosed(ctx, limit, plan, *closed)
	} else {
		e.runOpen(ctx, limit, plan, began)
	}
	e.follows.Wait()
	return context.Cause(ctx)
}

// sharedPlan hands out intents to several goroutines, in order.
type sharedPlan struct {
	mu   sync.Mutex
	plan *scenario.Plan
}

func (p *sharedPlan) next() (scenario.Intent, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan.Next()
}

// runOpen sends each intent at its time, whatever became of those before. Who has
// sent one waits for the next: a goroutine whose stack has grown already is much
// cheaper than a new one.
func (e *Engine) runOpen(ctx, limit context.Context, plan *sharedPlan, began time.Time) {
	var senders sync.WaitGroup
	due := make(chan scenario.Intent)
	for n := 0; ; {
		in, ok := plan.next()
		if !ok || sleepUntil(limit, began.Add(in.At)) != nil {
			break
		}
		select {
		case due <- in:
			continue
		default:
		}
		if n == inFlight {
			due <- in
			continue
		}
		n++
		senders.Go(func() {
			e.play(ctx, in, began.Add(in.At))
			for in := range due {
				e.play(ctx, in, began.Add(in.At))
			}
		})
	}
	close(due)
	senders.Wait()
}

// runClosed lets each client send its next request after the one before.
func (e *Engine) runClosed(ctx, limit context.Context, plan *sharedPlan, c scenario.Closed) {
	var clients sync.WaitGroup
	for range c.Clients {
		clients.Go(func() {
			for limit.Err() == nil {
				in, ok := plan.next()
				if !ok {
					return
				}
				e.play(ctx, in, time.Now())
				_ = sleep(limit, c.Think.Min+rand.N(c.Think.Max-c.Think.Min+1))
			}
		})
	}
	clients.Wait()
}

// play sends an intent and begins to follow its jobs; in a closed loop it waits
// for their end.
func (e *Engine) play(ctx context.Context, in scenario.Intent, intended time.Time) {
	e.raise(in.N + int64(in.Tickets) - 1)
	list := e.send(ctx, in, intended.UTC())
	var here sync.WaitGroup
	for _, t := range list {
		if t.job == "" || !t.hold {
			continue
		}
		e.follows.Add(1)
		here.Go(func() {
			defer e.follows.Done()
			e.follow(ctx, in, t)
		})
	}
	if e.awaitEnd {
		here.Wait()
	}
}

func (e *Engine) raise(number int64) {
	for {
		highest := e.tickets.Load()
		if number <= highest || e.tickets.CompareAndSwap(highest, number) {
			return
		}
	}
}

// sleepUntil is sleep for a moment; one that has passed costs nothing.
func sleepUntil(ctx context.Context, at time.Time) error {
	if d := time.Until(at); d > 0 {
		return sleep(ctx, d)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
