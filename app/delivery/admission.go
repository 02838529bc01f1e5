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
	// An endpoint gets about as many admitted tasks as it handles within busyTime. busyTime exceeds 1 s, because asynq starts deferred tasks
	// only at whole seconds.
	busyTime = 2 * time.Second
	// unknownRoom is the maximum number of admitted tasks of an endpoint that has not responded yet. The worker sends one delivery at a time
	// to such an endpoint; the other admitted tasks wait.
	unknownRoom = 4
	// minBusy and maxBusy limit how long a task is deferred.
	minBusy = time.Second
	maxBusy = 30 * time.Second
	// knownEndpoints is how many endpoints are tracked. Above this number, endpoints without tasks are forgotten.
	knownEndpoints = 10_000
	paceWeight     = 16
	// During the first paceKnown sends to an endpoint, its deferred tasks are scheduled minSpacing apart. After these sends, the measured
	// pace of the endpoint sets the spacing.
	paceKnown  = 64
	minSpacing = 200 * time.Microsecond
)

// admission limits the tasks per endpoint and client, so a slow receiver cannot occupy all handlers. Other tasks are deferred. Deferred
// tasks return to the worker about as fast as the endpoint accepts deliveries.
type admission struct {
	handlers int
	limit    int // simultaneous sends to an endpoint that responds
	active   prometheus.Gauge

	mu        sync.Mutex // guards the fields below, and the fields of clients and endpoints
	held      int
	clients   map[job.ID]*clientTasks
	endpoints map[job.EndpointKey]*endpointTasks
}

type clientTasks struct {
	held int
	rest time.Time // end of the pause after the client's rate limit was reached
}

type endpointTasks struct {
	client *clientTasks
	turn   chan struct{} // limits an endpoint that is not answering to one send at a time; contains a value during the send
	held   int
	since  time.Time // start of the next measurement of the pace: the latest end of a send, or the first admission after a pause
	health health
	sent   int
	pace   time.Duration // average time between the ends of two sends while tasks wait
	next   time.Time     // time at which the last of the deferred tasks comes back
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

// enter admits a task, or returns how long to defer it. After an admission, call leave.
func (a *admission) enter(t job.DeliveryTask) (e *endpointTasks, busy time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e = a.endpoint(job.EndpointKey{Client: t.ClientID, Endpoint: t.Endpoint})
	c, now := e.client, time.Now()
	switch {
	case c.rest.After(now):
		return e, e.putOff(now, c.rest.Sub(now))
	// The fewer handlers are free, the fewer tasks of one endpoint are admitted. This leaves handlers for other clients.
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

// leave ends an admitted task, and measures the endpoint's pace. `took` is the duration of the send, or 0 if nothing was sent.
func (a *admission) leave(e *endpointTasks, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if took > 0 {
		pace := now.Sub(e.since)
		switch {
		case e.health != answering: // the endpoint gets one send at a time
			pace = took
		case e.pace == 0, e.held <= a.limit: // first measurement, or too few tasks at once to measure the pace
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

// spacing returns the time between two deferred tasks. It is 3/4 of the average time between sends. So tasks come back faster than they are
// sent, and the endpoint never waits for a task. Before the endpoint's first response, the spacing grows with the time since the first
// admission.
func (e *endpointTasks) spacing(now time.Time) time.Duration {
	switch {
	case e.health == unknown && e.held > 0:
		return now.Sub(e.since) / paceWeight
	case e.health == answering && e.sent < paceKnown:
		return minSpacing
	}
	return e.pace * 3 / 4
}

// putOff returns how long to defer a task. The task comes back at least `after` later than the previously deferred task.
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

// The caller holds a.mu.
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
