package delivery

import (
	"sync"

	"github.com/forgerun/forgerun/job"
)

// origins bounds how many deliveries of a client are sent to one origin at once:
// scheme, host and port. So webhooks and callbacks at one origin share what one
// endpoint may take, however many they are. Clients do not share it: many may use
// one receiver, and none is to delay the others.
type origins struct {
	limit int

	mu    sync.Mutex
	gates map[originKey]*gate // those in use
}

type originKey struct {
	client job.ID
	origin string
}

type gate struct {
	slots chan struct{} // a token for each send
	users int           // that send or wait
}

func newOrigins(limit int) *origins { return &origins{limit: limit, gates: map[originKey]*gate{}} }

// enter waits for a slot until giveUp is closed, and reports whether it got one. leave
// gives it back.
func (o *origins) enter(at originKey, giveUp <-chan struct{}) bool {
	o.mu.Lock()
	g := o.gates[at]
	if g == nil {
		g = &gate{slots: make(chan struct{}, o.limit)}
		o.gates[at] = g
	}
	g.users++
	o.mu.Unlock()
	select {
	case g.slots <- struct{}{}:
		return true
	case <-giveUp:
		o.forget(at, g)
		return false
	}
}

func (o *origins) leave(at originKey) {
	o.mu.Lock()
	g := o.gates[at] // it has a user: this one
	o.mu.Unlock()
	<-g.slots
	o.forget(at, g)
}

// forget drops a gate that is not used.
func (o *origins) forget(at originKey, g *gate) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.users--; g.users == 0 {
		delete(o.gates, at)
	}
}

// originOf gives the origin that a delivery is sent to.
func originOf(p job.ClaimedDelivery) originKey {
	if origin := job.OriginOf(p.Target.URL); origin != "" {
		return originKey{p.ClientID, origin}
	}
	return originKey{p.ClientID, p.Endpoint.String()} // the sender refuses it
}
