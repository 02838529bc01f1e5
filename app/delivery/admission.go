package delivery

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/job"
)

const (
	// busyTime is how long the admitted tasks should keep an endpoint busy. It exceeds a second, because asynq hands out deferred tasks
	// again only at whole seconds.
	busyTime = 2 * time.Second
	// unknownRoom is how many tasks of an endpoint are admitted before its first response. Their deliveries are sent one at a time.
	unknownRoom = 4
	// A task is deferred for minBusy to maxBusy. The relay does not count such a task as lost.
	minBusy = time.Second
	maxBusy = 30 * time.Second
	// knownEndpoints is how many endpoints are tracked. Above that, endpoints without tasks are dropped.
	knownEndpoints = 10_000
	paceWeight     = 16
	// After paceKnown deliveries the pace of an endpoint is known. Until then, deferred tasks are spaced by minSpacing.
	paceKnown  = 64
	minSpacing = 200 * time.Microsecond
)

// admission limits how many tasks of an endpoint and of a client are handled at once, so that tasks of a slow receiver do not occupy
// all handlers. It defers the tasks above the limit, and spaces them so that they come back about as fast as they can be sent.
type admission struct {
	handlers int
	limit    int // simultaneous sends to an endpoint that responds
	active   prometheus.Gauge

	mu        sync.Mutex // guards the fields below, and those of clients and endpoints
	held      int
	clients   map[job.ID]*clientTasks
	endpoints map[job.EndpointKey]*endpointTasks
}

type clientTasks struct {
	held int
	rest time.Time // until then, the client's tasks are deferred because of its rate limit
}

type endpointTasks struct {
	client *clientTasks
	turn   chan struct{} // holds a token during a send; not used while the endpoint is known to respond
	held   int
	since  time.Time // start of the current measurement: the end of the latest send, or the first admission after idleness
	health health
	sent   int
	pace   time.Duration // average time from the end of one send to the end of the next, while the endpoint is busy
	next   time.Time     // when the latest deferred task is handed out again
}

type health int

const (
	unknown health = iota
	answering
	failing
)

func newAdmission(handlers, limit int, active prometheus.Gauge) *admission {
	return &admission{
		handlers: handlers, limit: limit, active: active,
		clients: map[job.ID]*clientTasks{}, endpoints: map[job.EndpointKey]*endpointTasks{},
	}
}

// Call leave after each admission.
func (a *admission) enter(t job.DeliveryTask) (e *endpointTasks, busy time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e = a.endpoint(job.EndpointKey{Client: t.ClientID, Endpoint: t.Endpoint})
	c, now := e.client, time.Now()
	switch {
	case c.rest.After(now):
		return e, e.putOff(now, c.rest.Sub(now))
	// The more tasks are admitted, the fewer a single endpoint may have. So a slow client leaves handlers free.
	case e.held >= min(a.most(e), a.handlers-a.held-c.held):
		return e, e.putOff(now, e.spacing(now))
	}
	if e.held == 0 {
		a.active.Inc()
		e.since = now
	}
	a.held++
	c.held++
	e.held++
	return e, 0
}

func (a *admission) most(e *endpointTasks) int {
	switch e.health {
	case failing:
		return 1
	case unknown:
		return unknownRoom
	}
	if e.pace == 0 {
		return a.handlers
	}
	return max(2*a.limit, int(busyTime/e.pace))
}

// leave ends the handling of a task; `took` is the duration of its send, 0 if nothing was sent.
func (a *admission) leave(e *endpointTasks, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if took > 0 {
		pace := now.Sub(e.since)
		switch {
		case e.health != answering: // the endpoint gets one send at a time
			pace = took
		case e.pace == 0, e.held <= a.limit: // too few tasks to measure the pace
			pace = took / time.Duration(a.limit)
		}
		if e.pace == 0 {
			e.pace = pace
		}
		e.pace += (pace - e.pace) / paceWeight
		e.sent++
		e.since = now
	}
	a.held--
	e.client.held--
	if e.held--; e.held == 0 {
		a.active.Dec()
	}
}

// spacing returns the time between two deferred tasks. It is slightly shorter than a send, so that the endpoint always has tasks. Until
// the endpoint responds, the spacing grows while the first task waits.
func (e *endpointTasks) spacing(now time.Time) time.Duration {
	switch {
	case e.health == unknown && e.held > 0:
		return now.Sub(e.since) / paceWeight
	case e.health == answering && e.sent < paceKnown:
		return minSpacing
	}
	return e.pace * 3 / 4
}

// The task is handed out again at least `after` later than the previously deferred one.
func (e *endpointTasks) putOff(now time.Time, after time.Duration) time.Duration {
	if e.next.Before(now) {
		e.next = now
	}
	e.next = e.next.Add(max(after, minSpacing))
	wait := e.next.Sub(now)
	if wait > maxBusy {
		e.next = now.Add(maxBusy)
		wait = rand.N(maxBusy)
	}
	return max(wait, minBusy)
}

func (a *admission) setHealth(e *endpointTasks, h health) { a.update(func() { e.health = h }) }

func (a *admission) update(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// The caller of endpoint holds the lock.
func (a *admission) endpoint(at job.EndpointKey) *endpointTasks {
	e := a.endpoints[at]
	if e != nil {
		return e
	}
	if len(a.endpoints) >= knownEndpoints {
		maps.DeleteFunc(a.endpoints, func(_ job.EndpointKey, e *endpointTasks) bool { return e.held == 0 })
		maps.DeleteFunc(a.clients, func(_ job.ID, c *clientTasks) bool { return c.held == 0 && c.rest.Before(time.Now()) })
	}
	if a.clients[at.Client] == nil {
		a.clients[at.Client] = &clientTasks{}
	}
	e = &endpointTasks{client: a.clients[at.Client], turn: make(chan struct{}, 1)}
	a.endpoints[at] = e
	return e
}
