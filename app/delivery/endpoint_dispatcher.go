package delivery

import (
	"slices"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// heldRounds is how many rounds of sends a pump may hold: the one under way, and
// what is sent while the next claim is.
const heldRounds = 4

// claimPause is how long a pump waits after a claim that found only what others
// have locked.
const claimPause = 100 * time.Millisecond

// pump sends what is due to one endpoint, until nothing is. All of its state
// belongs to the goroutine of run; the others answer through channels.
//
// It holds some rounds more than it may send at once, so that a receiver that is
// fast need not wait for the next claim. It sends one at a time until it has seen
// a success, and while the latest attempts failed. Of an endpoint that fails twice
// in a row it gives back what will not have its turn soon.
type pump struct {
	courier *Worker
	place   job.EndpointKey

	woken   chan struct{} // holds a token while there is something to look for; Courier.mu guards the end
	claims  chan claims
	results chan result

	due      bool // the next claim may find something
	claiming bool // a claim is under way
	proven   bool // an attempt of this pump succeeded
	failures int  // in a row: of this pump and the one before, or, if they are more, told by the latest claim
	waiting  []held
	lines    map[job.ID]struct{} // with a parcel being sent
}

// held is a claimed parcel. Its claim lasts until then by this process' clock,
// counted from before it was asked for.
type held struct {
	job.ClaimedDelivery
	until time.Time
}

// claims is the answer to a claim.
type claims struct {
	parcels []held
	more    bool // there may be more
}

// result is what a pump learns of a parcel that it gave away.
type result struct {
	line  job.ID
	sent  bool          // otherwise it was given back
	error job.SendError // of the attempt
}

func newPump(c *Worker, at job.EndpointKey, failures int) *pump {
	return &pump{
		courier: c, place: at, woken: make(chan struct{}, 1), claims: make(chan claims), results: make(chan result),
		failures: failures, lines: map[job.ID]struct{}{},
	}
}

// run ends when nothing is due and nothing under way. Whoever wakes the pump
// before it has left is heard; who comes later starts another one.
func (p *pump) run() {
	quit := p.courier.quit
	for {
		p.claim()
		p.sendNext()
		if p.idle() && p.courier.leave(p) {
			return
		}
		select {
		case <-p.woken:
			p.due = true
		case c := <-p.claims:
			p.take(c)
		case r := <-p.results:
			p.ended(r)
		case <-quit:
			quit = nil
		}
	}
}

func (p *pump) idle() bool {
	return !p.claiming && len(p.lines) == 0 && len(p.waiting) == 0 && (!p.due || p.courier.stopped())
}

// limit is how many parcels are sent to the endpoint at once.
func (p *pump) limit() int {
	if p.failures > 0 || !p.proven {
		return 1
	}
	return max(1, p.courier.cfg.Concurrency/endpointShare)
}

// most is how many parcels the pump may hold, sent and waiting.
func (p *pump) most() int {
	if p.failures > 0 {
		return 2
	}
	return min(heldRounds*p.limit(), p.courier.share())
}

// claim asks for more when a quarter of what the pump may hold is free: smaller
// claims cost more than they bring.
func (p *pump) claim() {
	most := p.most()
	room := most - len(p.waiting) - len(p.lines)
	if !p.due || p.claiming || 4*room < most || p.courier.stopped() {
		return
	}
	p.due, p.claiming = false, true
	p.courier.running.Go(func() { p.claims <- p.ask(room) })
}

// ask claims up to n deliveries. What becomes of a claim whose answer is lost,
// and what is due after one that failed, the relay finds.
func (p *pump) ask(n int) claims {
	asked := time.Now()
	parcels, more, err := p.courier.store.ClaimDeliveries(p.courier.storing, p.place.Client, p.place.Endpoint, n, p.courier.hold)
	if err != nil {
		p.courier.log.WarnContext(p.courier.storing, "cannot claim deliveries", "action", "deliver", "client_id", p.place.Client.String(), app.ErrorFields(err))
		return claims{}
	}
	if more && len(parcels) == 0 {
		p.courier.pause(claimPause)
	}
	got := claims{parcels: make([]held, len(parcels)), more: more}
	for i := range parcels {
		got.parcels[i] = held{ClaimedDelivery: parcels[i], until: asked.Add(p.courier.hold)}
	}
	return got
}

func (p *pump) take(c claims) {
	p.claiming = false
	p.due = p.due || c.more
	p.waiting = append(p.waiting, c.parcels...)
	if len(c.parcels) > 0 {
		p.failures = max(p.failures, c.parcels[0].Target.Failures)
	}
}

// sendNext gives away what may be sent now: of each line the first, within the
// limit. Once the courier stops, all that waits is given back instead.
func (p *pump) sendNext() {
	if p.courier.stopped() {
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
		p.courier.running.Go(func() { p.courier.deliver(h, p.results) })
	}
	p.waiting = later
	if p.failures > 1 {
		p.giveBack(1)
	}
}

// giveBack releases what waits, but for the first few. It is due again then,
// also if this pump has ended.
func (p *pump) giveBack(keep int) {
	if len(p.waiting) <= keep {
		return
	}
	unused := slices.Clone(p.waiting[keep:])
	p.waiting = p.waiting[:keep]
	p.courier.running.Go(func() {
		p.courier.release(unused...)
		_ = p.courier.wake(p.place) // if it cannot, the relay has it looked for
	})
}

// ended learns from a result. A success ends the caution towards an endpoint
// that was failing. Trouble on this side says nothing about the endpoint. What
// was given back is due again.
func (p *pump) ended(r result) {
	delete(p.lines, r.line)
	switch {
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
