package load

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
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
	History  interface{ Add(history.Fact) }
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
	// Pending counts the pending deliveries, if that is known without
	// asking each webhook for its own. May be nil.
	Pending func(context.Context) (int64, error)
	// Transport sends all requests; nil: transports of the engine's own.
	Transport http.RoundTripper
	// Poll is the longest wait between two looks at a job, and Watch that of a
	// client that waits for a state to cancel in. 0: as the service asks for, in
	// bounds.
	Poll, Watch time.Duration
	// Recheck is how long a canceled job must stay as it is, after its time too if
	// that is near: then it is canceled once more and looked at. 0: never.
	Recheck time.Duration
	// Unwatched: nobody looks what becomes of the jobs. It is for measuring the
	// generator, against a service that has none.
	Unwatched bool
}

// inFlight bounds the submissions on their way. Only a service that stands still
// for long makes that many wait; the generator then waits too, and latencies show
// it, since they count from the intended time.
const inFlight = 2048

// Engine drives one run. Its methods are called once each, in the order Prepare,
// Run, Drain, Close.
type Engine struct {
	o        Options
	accounts []*Account
	jobs     *jobs
	quick    *transport // nil: another one is used
	awaitEnd bool       // closed loop: the next request comes after the job's end

	background sync.WaitGroup // streams
	stop       context.CancelFunc
	follows    sync.WaitGroup
	tickets    atomic.Int64 // the highest number sent
	late       atomic.Int64 // nanoseconds by which the latest request was sent too late
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
	e.jobs = newJobs(e.watched(), o.Recorder.Moved, func(j *job) { o.Recorder.Finished(j.intended, j.last, j.state) })
	return e, nil
}

// watched reports whether the ends of jobs are learned from streams.
func (e *Engine) watched() bool { return e.o.Scenario.Readers.Streams > 0 }

// Late is by how much the last requests of an open loop were sent after their
// time: the service was too slow for as many as are sent at once. It is in their
// latencies.
func (e *Engine) Late() time.Duration { return time.Duration(e.late.Load()) }

// Tickets returns how many submissions the plan has had so far.
func (e *Engine) Tickets() int64 { return e.tickets.Load() }

// Run sends the plan and returns when its last submission has been answered or
// given up, and the client's part in all jobs is played.
func (e *Engine) Run(ctx context.Context) error {
	if e.quick != nil {
		defer context.AfterFunc(ctx, e.quick.abort)()
	}
	if !e.watched() && !e.o.Unwatched {
		asking, done := context.WithCancel(ctx)
		var asker sync.WaitGroup
		asker.Go(func() { e.askOn(asking) })
		defer asker.Wait()
		defer done()
	}
	plan := &sharedPlan{plan: e.o.Scenario.Plan()}
	if closed := e.o.Scenario.Arrival.Closed; closed != nil {
		e.runClosed(ctx, plan, *closed)
	} else {
		e.runOpen(ctx, plan)
	}
	e.follows.Wait()
	return context.Cause(ctx)
}

// always is ready.
var always = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

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

// runOpen sends each intent at its time, whatever became of those before, and all
// of them: one that comes late is sent late, and measured so. Who has sent one
// waits for the next: a goroutine whose stack has grown already is much cheaper
// than a new one.
func (e *Engine) runOpen(ctx context.Context, plan *sharedPlan) {
	began := time.Now()
	var senders sync.WaitGroup
	due := make(chan scenario.Intent)
	send := func(in scenario.Intent) {
		at := began.Add(in.At)
		e.late.Store(int64(time.Since(at)))
		e.play(ctx, in, at)
	}
	for n := 0; ; {
		in, ok := plan.next()
		if !ok || sleepUntil(ctx, began.Add(in.At)) != nil {
			break
		}
		var another <-chan struct{} // ready if one more may be begun
		if n < inFlight {
			another = always
		}
		select {
		case due <- in: // somebody waits
			continue
		default:
		}
		select {
		case due <- in:
		case <-another:
			n++
			senders.Go(func() {
				send(in)
				for in := range due {
					send(in)
				}
			})
		case <-ctx.Done():
		}
	}
	close(due)
	senders.Wait()
}

// runClosed lets each client send its next request after the end of its last job,
// until the scenario's time is over.
func (e *Engine) runClosed(ctx context.Context, plan *sharedPlan, c scenario.Closed) {
	limit := ctx
	if d := e.o.Scenario.Duration; d > 0 {
		var cancel context.CancelFunc
		limit, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	var clients sync.WaitGroup
	for range c.Clients {
		clients.Go(func() {
			for limit.Err() == nil {
				in, ok := plan.next()
				if !ok {
					return
				}
				e.play(ctx, in, time.Now())
				_ = Sleep(limit, c.Think.Min+rand.N(c.Think.Max-c.Think.Min+1))
			}
		})
	}
	clients.Wait()
}

// Play sends an intent and plays the client's part in its jobs until all of them
// have ended, or ctx. It may be called by several goroutines, in place of Run.
func (e *Engine) Play(ctx context.Context, in scenario.Intent) { e.play(ctx, in, time.Now()) }

// play sends an intent and begins to follow its jobs; in a closed loop it waits
// for their end.
func (e *Engine) play(ctx context.Context, in scenario.Intent, intended time.Time) {
	e.raise(in.N + int64(in.Tickets) - 1)
	list := e.send(ctx, in, intended.UTC())
	var here sync.WaitGroup
	for _, t := range list {
		if t.job != "" && len(e.accounts) > 1 && t.number%intrudeEvery == 0 {
			e.follows.Add(1)
			here.Go(func() {
				defer e.follows.Done()
				e.intrude(ctx, t)
			})
		}
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
		return Sleep(ctx, d)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
