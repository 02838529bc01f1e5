package scenario

import (
	"time"

	"go.yaml.in/yaml/v3"
)

func (d *decoder) arrival(n *yaml.Node, duration time.Duration) (a Arrival) {
	var phases []*yaml.Node
	g := d.mapping("arrival", n,
		member{"closed", func(_ string, n *yaml.Node) { a.Closed = d.closed(n) }},
		member{"open", d.each(&phases)},
	)
	if n.Kind == yaml.MappingNode && g.has("closed") == g.has("open") {
		d.wrong(n, "arrival must have one of closed (clients that wait for their jobs) and open (phases with a rate or bursts)")
	}
	sends := len(phases) == 0
	for _, n := range phases {
		p, g := d.phase(n)
		if p.For == 0 {
			p.For = d.lasting(g, len(phases), duration)
		}
		if p.Every == 0 {
			p.Every = p.For
		}
		sends = sends || p.Burst > 0 || p.hasRate()
		a.Open = append(a.Open, p)
	}
	if !sends && len(d.found) == 0 {
		d.wrong(g.of("open"), "no phase sends anything: one needs a rate above 0 or a burst")
	}
	return a
}

func (d *decoder) closed(n *yaml.Node) *Closed {
	var c Closed
	g := d.mapping("closed", n,
		member{"clients", whole(d, &c.Clients, 1, mostClients)},
		member{"think", d.span(&c.Think, 0, mostPause)},
	)
	d.require(g, "closed", "clients")
	return &c
}

func (d *decoder) phase(n *yaml.Node) (p Phase, g given) {
	var rate float64
	arrivals := "even"
	g = d.mapping("a phase", n,
		member{"for", d.duration(&p.For, leastPhase, mostDuration)},
		member{"rate", d.rate(&rate)},
		member{"from", d.rate(&p.From)},
		member{"to", d.rate(&p.To)},
		member{"arrivals", d.choice(&arrivals, "even", "poisson")},
		member{"burst", whole(d, &p.Burst, 1, mostBurst)},
		member{"every", d.duration(&p.Every, time.Millisecond, mostDuration)},
	)
	p.Poisson = arrivals == "poisson"
	if g.has("rate") {
		p.From, p.To = rate, rate
	}
	if n.Kind == yaml.MappingNode {
		d.checkPhase(g)
	}
	return p, g
}

func (d *decoder) checkPhase(g given) {
	ramp := g.has("from") || g.has("to")
	ways := 0
	for _, way := range []bool{g.has("rate"), ramp, g.has("burst")} {
		if way {
			ways++
		}
	}
	switch {
	case ways != 1:
		d.wrong(g.node, "a phase has one of rate, from and to, and burst")
	case ramp:
		d.require(g, "a phase with from or to", "from", "to")
	case g.has("burst") && g.has("arrivals"):
		d.wrong(g.of("arrivals"), "a burst is sent at once, so it has no arrivals")
	}
	if g.has("every") && !g.has("burst") {
		d.wrong(g.of("every"), "every is the time from burst to burst, and the phase has no burst")
	}
}

// lasting is how long a phase without the member for lasts: as the scenario.
func (d *decoder) lasting(g given, phases int, duration time.Duration) time.Duration {
	switch {
	case g.node.Kind != yaml.MappingNode || g.has("for"): // and wrong, which was told
	case phases > 1:
		d.wrong(g.node, "a phase needs the member for, unless it is the only one")
	case g.has("from") && duration == 0:
		d.wrong(g.node, "a ramp needs the member for, or the scenario a duration, so that its end is known")
	}
	if duration == 0 {
		return longest
	}
	return duration
}
