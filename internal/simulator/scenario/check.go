package scenario

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// check reports mistakes that the schema cannot express. It also sets missing members if their default depends on other members.
func (p *parser) check(s *Scenario) {
	if c := s.Arrival.Closed; c != nil && c.Clients < s.Tenants {
		p.wrong(p.node("tenants"), "with %d tenants, arrival.closed.clients must be at least as high, not %d", s.Tenants, c.Clients)
	}
	var callbacks, taken []string
	for i := range s.Receivers {
		r, at := &s.Receivers[i], []string{"receivers", strconv.Itoa(i)}
		if slices.Contains(taken, r.Name) {
			p.wrong(p.node(append(at, "name")...), "the name %q is used twice: each receiver needs its own name", r.Name)
		}
		taken = append(taken, r.Name)
		switch {
		case r.Callback:
			callbacks = append(callbacks, r.Name)
		case len(r.Events) == 0:
			r.Events = []string{"*"}
		}
		p.answers(r, p.node(append(at, "answers")...))
	}
	for i, w := range s.Mix {
		p.callback(p.node("mix", strconv.Itoa(i), "callback"), w.Callback, callbacks)
	}
	p.phases(s)
}

func (p *parser) node(path ...string) *yaml.Node {
	_, node := p.at(path...)
	return node
}

// answers completes the shares of a receiver's responses. One response may omit its share, and then gets the rest of 1. If all responses
// have a share and the sum is below 1, answers adds a 200 response for the rest.
func (p *parser) answers(r *Receiver, list *yaml.Node) {
	rest, without := Share(1), -1
	for i, a := range r.Answers {
		switch {
		case a.First > 0:
			r.Answers[i].Share = 0
		case a.Share >= 0:
			rest -= a.Share
		case without < 0:
			without = i
		default:
			p.wrong(list.Content[i], "only one response may omit its share, and line %d already does", list.Content[without].Line)
		}
	}
	switch {
	case rest < -1e-9:
		p.wrong(list.Content[0], "the shares of the answers add up to %.4g%%, but at most 100%% is allowed", 100*(1-rest))
	case without >= 0:
		r.Answers[without].Share = max(rest, 0)
	case rest > 1e-9:
		r.Answers = append(r.Answers, Answer{Status: 200, Share: rest})
	}
}

// callback checks that a callback names a receiver with "callback: true". All other receivers are webhooks. They would reject a callback,
// because it is not signed with the webhook's secret.
func (p *parser) callback(at *yaml.Node, name string, allowed []string) {
	switch {
	case name == "" || slices.Contains(allowed, name):
	case len(allowed) == 0:
		p.wrong(at, "callback must name a receiver with callback: true, but the scenario has none")
	default:
		p.wrong(at, "callback must name a receiver with callback: true (%s), not %s", strings.Join(allowed, ", "), shown(at))
	}
}

// phases sets the defaults of an open loop. A phase without the member `for` lasts as long as the run. A phase without the member `every`
// has only one burst.
func (p *parser) phases(s *Scenario) {
	sends := len(s.Arrival.Open) == 0
	for i := range s.Arrival.Open {
		phase := &s.Arrival.Open[i]
		phase.For = cmp.Or(phase.For, s.Duration, longest)
		phase.Every = cmp.Or(phase.Every, phase.For)
		sends = sends || phase.Burst > 0 || phase.hasRate()
	}
	if !sends {
		p.wrong(p.node("arrival", "open"), "no phase sends requests: at least one needs a rate above 0 or a burst")
	}
}
