package delivery

import (
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// heldRounds is how many rounds of sends a dispatcher may hold: the one under way, and
// what is sent while the next claim is.
const heldRounds = 4

// claimPause is how long a dispatcher waits after a claim that found only what others
// have locked.
const claimPause = 100 * time.Millisecond

// soonest is the longest wait for what will be due shortly. By a clock that is frozen or slow it may be longer: then the
// delivery's task in the queue, or the relay, begins anew.
const soonest = time.Second

// endpointDispatcher sends what is due to one endpoint, until nothing is. All of its state
// belongs to the goroutine of run; the others answer through channels.
//
// It holds some rounds more than it may send at once, so that a receiver that is
// fast need not wait for the next claim. It sends one at a time until it has seen
// a success, and while the latest attempts failed. Of an endpoint that fails twice
// in a row it gives back what will not have its turn soon. While its client's
// attempts per minute are used up it holds nothing.
type endpointDispatcher struct {
	worker   *Worker
	endpoint job.EndpointKey

	woken   chan struct{} // holds a token while there is something to look for; Worker.mu guards the end
	claims  chan claims
	results chan result

	due      bool             // the next claim may find something
	soon     <-chan time.Time // comes when something will be due shortly; nil: nothing is known
	claiming bool             // a claim is under way
	rest     <-chan time.Time // comes when the client may have attempts again; nil: it has some
	limited  bool             // the client's attempts were used up before: little is claimed ahead
	proven   bool             // an attempt of this dispatcher succeeded
	failures int              // in a row: of this dispatcher, or, if they are more, as of the latest claim
	waiting  []held
	lines    map[job.ID]struct{} // with a delivery being sent
}

// held is a claimed delivery. Its claim lasts until then by this process' clock,
// counted from before it was asked for.
type held struct {
	job.ClaimedDelivery
	until time.Time
}

// claims is the answer to a claim.
type claims struct {
	deliveries []held
	more       bool // there may be more
	next       time.Duration
}

// result is what a dispatcher learns of a delivery that it gave away.
type result struct {
	line  job.ID
	sent  bool          // otherwise it was given back
	error job.SendError // of the attempt
	rest  time.Duration // for so long nothing may be sent to the client
}

func newDispatcher(c *Worker, at job.EndpointKey) *endpointDispatcher {
	return &endpointDispatcher{
		worker: c, endpoint: at, woken: make(chan struct{}, 1), claims: make(chan claims), results: make(chan result),
		lines: map[job.ID]struct{}{},
	}
}

// run ends when nothing is due and nothing under way. A wake-up
// before it has left is heeded; a later one starts another dispatcher.
func (p *endpointDispatcher) run() {
	quit := p.worker.quit
	for {
		p.claim()
		p.sendNext()
		if p.idle() && p.worker.leave(p) {
			return
		}
		select {
		case <-p.woken:
			p.due = true
		case c := <-p.claims:
			p.take(c)
		case r := <-p.results:
			p.ended(r)
		case <-p.soon:
			p.due, p.soon = true, nil
		case <-p.rest:
			p.due, p.rest = true, nil
		case <-quit:
			quit = nil
		}
	}
}

func (p *endpointDispatcher) idle() bool {
	return !p.claiming && len(p.lines) == 0 && len(p.waiting) == 0 && (!p.due && p.soon == nil || p.worker.stopped())
}

// limit is how many deliveries are sent to the endpoint at once.
func (p *endpointDispatcher) limit() int {
	if p.failures > 0 || !p.proven {
		return 1
	}
	return max(1, p.worker.cfg.Concurrency/endpointShare)
}

// most is how many deliveries the dispatcher may hold, sent and waiting.
func (p *endpointDispatcher) most() int {
	if p.failures > 0 {
		return 2
	}
	if p.limited {
		return min(p.limit(), p.worker.share())
	}
	return min(heldRounds*p.limit(), p.worker.share())
}

// claim asks for more when a quarter of what the dispatcher may hold is free: smaller
// claims cost more than they bring.
func (p *endpointDispatcher) claim() {
	most := p.most()
	room := most - len(p.waiting) - len(p.lines)
	if !p.due || p.claiming || p.rest != nil || 4*room < most || p.worker.stopped() {
		return
	}
	p.due, p.claiming = false, true
	p.worker.running.Go(func() { p.claims <- p.ask(room) })
}

// ask claims up to n deliveries. What becomes of a claim whose answer is lost,
// and what is due after one that failed, the relay finds.
func (p *endpointDispatcher) ask(n int) claims {
	asked := time.Now()
	claimed, err := p.worker.store.ClaimDeliveries(p.worker.storing, p.endpoint.Client, p.endpoint.Endpoint, n, p.worker.hold)
	if err != nil {
		p.worker.log.WarnContext(p.worker.storing, "cannot claim deliveries", "action", "deliver", "client_id", p.endpoint.Client.String(),
			app.ErrorFields(err))
		return claims{}
	}
	if claimed.More && len(claimed.Deliveries) == 0 {
		p.worker.pause(claimPause)
	}
	got := claims{deliveries: make([]held, len(claimed.Deliveries)), more: claimed.More, next: claimed.Next}
	for i, d := range claimed.Deliveries {
		got.deliveries[i] = held{ClaimedDelivery: d, until: asked.Add(p.worker.hold)}
	}
	return got
}

func (p *endpointDispatcher) take(c claims) {
	p.claiming = false
	p.due = p.due || c.more
	if c.next > 0 { // the wake-up may have come early: clocks differ, and Postgres' decides
		if wait := p.worker.cfg.Clock.Wait(c.next); wait <= soonest {
			p.soon = time.After(wait)
		}
	}
	p.waiting = append(p.waiting, c.deliveries...)
	if len(c.deliveries) > 0 {
		p.failures = max(p.failures, c.deliveries[0].Target.Failures)
	}
}

// sendNext gives away what may be sent now: of each line the first, within the
// limit. Once the worker stops, and while the client may have no attempts, all that
// waits is given back instead.
func (p *endpointDispatcher) sendNext() {
	if p.worker.stopped() || p.rest != nil {
		p.giveBack(0)
		return
	}
	limit, later := p.limit(), []held(nil)
	for _, h := range p.waiting {
		line := lineOf(h.ClaimedDelivery)
		if _, busy := p.lines[line]; busy || len(p.lines) >= limit {
			later = append(later, h)
			continue
		}
		p.lines[line] = struct{}{}
		p.worker.running.Go(func() { p.worker.deliver(h, p.results) })
	}
	p.waiting = later
	if p.failures > 1 {
		p.giveBack(1)
	}
}

// giveBack releases what waits, but for the first few. It is due again then,
// also if this dispatcher has ended.
func (p *endpointDispatcher) giveBack(keep int) {
	if len(p.waiting) <= keep {
		return
	}
	unused := slices.Clone(p.waiting[keep:])
	p.waiting = p.waiting[:keep]
	p.worker.running.Go(func() {
		p.worker.release(unused...)
		_ = p.worker.wake(p.endpoint) // if it cannot, the relay has it looked for
	})
}

// ended learns from a result. A success ends the caution towards an endpoint
// that was failing. Trouble on this side says nothing about the endpoint. What
// was given back is due again.
func (p *endpointDispatcher) ended(r result) {
	delete(p.lines, r.line)
	switch {
	case r.rest > 0:
		p.due, p.limited = true, true
		if p.rest == nil {
			p.rest = time.After(r.rest)
		}
	case !r.sent:
		p.due = true
	case r.error == "":
		p.proven, p.failures = true, 0
	case r.error != job.SendInternal:
		p.failures++
	}
}

// lineOf names what is sent one after another: the deliveries of a job. Others
// are independent.
func lineOf(p job.ClaimedDelivery) job.ID {
	if p.JobID.IsZero() {
		return p.Delivery.ID
	}
	return p.JobID
}
