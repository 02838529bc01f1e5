// Package load drives a scenario against a running service. It sends the planned requests, follows the jobs, and records what it observes.
// Package judge judges the observations.
package load

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// Options configure an Engine.
type Options struct {
	URL      string // base address of the service
	Key      string // API key, if the scenario has one tenant; "": each tenant registers and gets a key
	Run      string // id of this run, letters and digits; correlation ids begin with it
	Scenario *scenario.Scenario
	History  interface{ Add(history.Fact) }
	Recorder *report.Recorder
	Receiver *receiver.Receiver                   // receives the webhook messages; nil if the scenario has no receivers
	Pending  func(context.Context) (int64, error) // counts pending deliveries in the database; nil: Drain polls the API
	// Recheck is the time from a job's cancellation to a second cancel request; 0: no second request. If the job is due within a minute after
	// its cancellation, the time starts at execution_at.
	Recheck time.Duration
}

// A request is repeated for at most this long if its effect is unknown.
const patience = time.Minute

// inFlight limits concurrent submissions. If the limit is reached, later submissions wait. Latencies include this wait, because they are
// measured from the planned send time.
const inFlight = 2048

// Engine drives one run. Call each method once, in the order Prepare, Run, Drain, Close.
type Engine struct {
	o         Options
	accounts  []history.Account
	plan      *scenario.Plan
	mu        sync.Mutex
	callbacks []*ticket          // at most mostCallbacks tickets of jobs with a callback
	schedules []*client.Schedule // the schedules of the first account, then of the second, and so on
	jobs      *jobs
	clock     serviceClock
	timeout   time.Duration
	awaitEnd  bool // closed loop: a client sends its next request after the end of its job

	background sync.WaitGroup // goroutines of streams and of the clock
	stop       context.CancelFunc
	follows    sync.WaitGroup
	late       atomic.Int64 // result of Late in nanoseconds
}

// New makes an engine. If Options.Key is set, the scenario must have exactly one tenant.
func New(o Options) *Engine {
	e := &Engine{o: o, plan: o.Scenario.Plan(), timeout: requestTimeout, awaitEnd: o.Scenario.Arrival.Closed != nil}
	e.jobs = newJobs(e.watched(), o.Recorder.Moved, func(j *job) { o.Recorder.Finished(j.last.Sub(j.intended), j.state) })
	return e
}

func (e *Engine) watched() bool { return e.o.Scenario.Readers.Streams > 0 }

// Late returns the delay of the last request that an open loop has sent: actual send time minus planned send time.
func (e *Engine) Late() time.Duration { return time.Duration(e.late.Load()) }

// Tickets returns the number of submissions that the plan has produced so far.
func (e *Engine) Tickets() int64 { return e.plan.Tickets() }

// Run sends the planned requests. It returns when all requests are done and all schedules have ended.
func (e *Engine) Run(ctx context.Context) error {
	if !e.watched() {
		asking, done := context.WithCancel(ctx)
		var asker sync.WaitGroup
		asker.Go(func() {
			for Sleep(asking, drainStep) == nil { // no stream is read, so only polls show that jobs have ended
				e.askForSilent(asking)
			}
		})
		defer asker.Wait()
		defer done()
	}
	if err := e.schedule(ctx); err != nil {
		return err
	}
	if closed := e.o.Scenario.Arrival.Closed; closed != nil {
		e.runClosed(ctx, *closed)
	} else {
		e.runOpen(ctx)
	}
	e.follows.Wait()
	err := e.awaitSchedules(ctx)
	return cmp.Or(context.Cause(ctx), err)
}

func (e *Engine) runOpen(ctx context.Context) {
	began := time.Now()
	var senders errgroup.Group
	senders.SetLimit(inFlight)
	for in, ok := e.plan.Next(); ok; in, ok = e.plan.Next() {
		at := began.Add(in.At)
		if Sleep(ctx, time.Until(at)) != nil {
			break
		}
		senders.Go(func() error {
			e.late.Store(int64(time.Since(at)))
			e.play(ctx, in, at)
			return nil
		})
	}
	_ = senders.Wait() // no sender returns an error
}

func (e *Engine) runClosed(ctx context.Context, c scenario.Closed) {
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
				in, ok := e.plan.Next()
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

func (e *Engine) play(ctx context.Context, in scenario.Intent, intended time.Time) {
	list := e.send(ctx, in, intended.UTC())
	follows := &e.follows
	if e.awaitEnd {
		follows = &sync.WaitGroup{}
	}
	for _, t := range list {
		if t.job != "" && len(e.accounts) > 1 && t.number%intrudeEvery == 0 {
			follows.Go(func() { e.intrude(ctx, t) })
		}
		if t.job != "" && t.hold {
			follows.Go(func() { e.follow(ctx, in, t) })
		}
	}
	if e.awaitEnd {
		follows.Wait()
	}
}

// All jobs of schedules have this ticket number.
const scheduledTicket = -1

// The service may create the last job of a schedule this late, because it may have to elect a new leader first.
const lateRuns = time.Minute

func (e *Engine) schedule(ctx context.Context) error {
	s := e.o.Scenario.Schedules
	for _, a := range e.accounts {
		for n := range s.Count {
			created, err := a.Client.CreateSchedule(ctx, client.ScheduleRequest{
				Name: fmt.Sprintf("%s.%d", e.o.Run, n), Interval: s.Every.String(), EndAt: time.Now().Add(e.o.Scenario.Duration).UTC(),
				CatchUp: client.CatchUpAll, CatchUpMax: 1000, Job: client.JobRequest{Type: client.Execute, WorkKind: client.KindSuccessFast},
			})
			if err != nil {
				return fmt.Errorf("create a schedule of tenant %d: %w", a.Tenant, err)
			}
			e.schedules = append(e.schedules, created)
			e.o.History.Add(history.Fact{At: time.Now().UTC(), Kind: history.Scheduled, Tenant: a.Tenant, Schedule: &history.Schedule{
				ID: created.ScheduleID, Interval: s.Every, CreatedAt: created.CreatedAt, EndAt: created.EndAt,
			}})
		}
	}
	return nil
}

// awaitSchedules waits until all schedules have ended. It adds the schedules' jobs to e.jobs, so that Drain waits for these jobs too.
func (e *Engine) awaitSchedules(ctx context.Context) error {
	for n, s := range e.schedules {
		a := e.accounts[n/e.o.Scenario.Schedules.Count]
		for limit := s.EndAt.Add(lateRuns); ; {
			now, err := a.Client.Schedule(ctx, s.ScheduleID)
			if err == nil && (now.State == "ENDED" || time.Now().After(limit)) {
				break
			}
			if err := Sleep(ctx, 200*time.Millisecond); err != nil {
				return err
			}
		}
		for j, err := range a.Client.Jobs(ctx, client.JobFilter{ScheduleID: s.ScheduleID, PageSize: 100}) {
			if err != nil {
				return fmt.Errorf("list the jobs of schedule %s: %w", s.ScheduleID, err)
			}
			e.jobs.accepted(j.JobID, j.State, false, func(known *job) {
				known.ticket, known.tenant, known.intended = scheduledTicket, a.Tenant, j.ScheduledFor
			})
		}
	}
	return nil
}
