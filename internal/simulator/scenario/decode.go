package scenario

import (
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

// The bounds of what a file may ask for.
const (
	mostJobs     = 1_000_000_000
	mostTenants  = 1000
	mostClients  = 100_000
	mostEntries  = 100 // of a list or a mapping
	mostBurst    = 1_000_000
	mostItems    = 1000 // of a batch, which is the service's bound
	mostCopies   = 1000
	mostRetries  = 100
	mostParams   = 1 << 20
	mostStreams  = 100
	mostSlots    = 10_000
	mostScale    = 1000
	mostWeight   = 1_000_000
	leastPhase   = 100 * time.Millisecond
	leastAhead   = 100 * time.Millisecond // the service must still find it in the future
	mostAhead    = 366 * 24 * time.Hour
	mostPause    = time.Hour
	mostDuration = longest
)

var (
	anyText      = regexp.MustCompile(`(?s)^.{0,1000}$`)
	scenarioName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	receiverName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)
	chaosForm    = regexp.MustCompile(`^[a-z-]+=([0-9]+(\.[0-9]+)?(ms|s|m|h))+(,[a-z-]+=([0-9]+(\.[0-9]+)?(ms|s|m|h))+)*$`)
	workersForm  = regexp.MustCompile(`^([1-9]|[12][0-9]|3[0-2])(\.\.([1-9]|[12][0-9]|3[0-2])|(,([1-9]|[12][0-9]|3[0-2]))+)?$`)
)

const receiverRule = "1 to 40 of lower-case letters, digits and dashes"

func (d *decoder) scenario(n *yaml.Node, s *Scenario) {
	var arrival *yaml.Node
	var mix, receivers []*yaml.Node
	g := d.mapping("a scenario", n,
		member{"name", d.text(&s.Name, scenarioName, "1 to 64 of letters, digits, dashes and underscores")},
		member{"description", d.text(&s.Description, anyText, "text of at most 1000 characters")},
		member{"seed", d.seed(&s.Seed)},
		member{"duration", d.duration(&s.Duration, time.Second, mostDuration)},
		member{"jobs", whole(d, &s.Jobs, 1, mostJobs)},
		member{"drain", d.duration(&s.Drain, time.Second, mostDuration)},
		member{"tenants", whole(d, &s.Tenants, 1, mostTenants)},
		member{"arrival", func(_ string, n *yaml.Node) { arrival = n }},
		member{"pick", d.choice(&s.Pick, Weighted, InTurn)},
		member{"mix", d.each(&mix)},
		member{"receivers", d.each(&receivers)},
		member{"readers", func(_ string, n *yaml.Node) { d.readers(n, &s.Readers) }},
		member{"service", func(_ string, n *yaml.Node) { d.service(n, &s.Service) }},
		member{"chaos", d.text(&s.Chaos, chaosForm, "faults and their mean intervals, such as kill=30s,cut=5s")},
		member{"expect", func(_ string, n *yaml.Node) { d.expect(n, &s.Expect) }},
	)
	if g.node.Kind != yaml.MappingNode {
		return
	}
	// These wait for members that they depend on, wherever in the file those are.
	if arrival != nil {
		s.Arrival = d.arrival(arrival, s.Duration)
	}
	for _, r := range receivers {
		s.Receivers = append(s.Receivers, d.receiver(r, s.Receivers))
	}
	for _, w := range mix {
		s.Mix = append(s.Mix, d.work(w, s))
	}
	d.checkScenario(g, s)
}

// each keeps the elements of a list, to be read later.
func (d *decoder) each(into *[]*yaml.Node) read {
	return func(name string, n *yaml.Node) {
		d.list(name, n, mostEntries, func(e *yaml.Node) { *into = append(*into, e) })
	}
}

func (d *decoder) readers(n *yaml.Node, r *Readers) {
	d.mapping("readers", n,
		member{"streams", whole(d, &r.Streams, 0, mostStreams)},
		member{"slow", whole(d, &r.Slow, 0, mostStreams)},
		member{"slow_pause", d.duration(&r.SlowPause, time.Millisecond, mostPause)},
		member{"poll", d.share(&r.Poll)},
	)
}

func (d *decoder) service(n *yaml.Node, s *Service) {
	var scale float64
	g := d.mapping("service", n,
		member{"workers", func(name string, n *yaml.Node) { d.workers(name, n, &s.Workers) }},
		member{"concurrency", whole(d, &s.Concurrency, 1, mostSlots)},
		member{"time_scale", d.number(&scale, func(v float64) bool { return v >= 0 && v <= mostScale }, "a number from 0 to 1000")},
		member{"env", func(_ string, n *yaml.Node) { s.Env = d.env(n) }},
	)
	if g.has("time_scale") {
		s.TimeScale = &scale
	}
}

func (d *decoder) workers(name string, n *yaml.Node, into *string) {
	text, err := scalar(n)
	if tag := n.ShortTag(); err != nil || (tag != "!!int" && tag != "!!str") || !workersForm.MatchString(text) {
		d.wrong(n, "%s must be a number of processes from 1 to 32, such as 2, a ramp, such as 1..4, or steps, such as 1,4,2, not %s", name, shown(n))
		return
	}
	*into = text
}

func (d *decoder) env(n *yaml.Node) map[string]string {
	env := map[string]string{}
	known := make([]member, len(settings))
	for i, name := range settings {
		known[i] = member{name, func(name string, n *yaml.Node) {
			text, err := scalar(n)
			if err != nil {
				d.wrong(n, "%s %v", name, err)
				return
			}
			env[name] = text
		}}
	}
	d.mapping("env", n, known...)
	return env
}

func (d *decoder) expect(n *yaml.Node, e *Expect) {
	var refused float64
	g := d.mapping("expect", n,
		member{"refused", d.share(&refused)},
		member{"submit_p99", d.duration(&e.SubmitP99, time.Millisecond, mostDuration)},
		member{"finish_p99", d.duration(&e.FinishP99, time.Millisecond, mostDuration)},
	)
	if g.has("refused") {
		e.Refused = &refused
	}
}

func isWeight(v float64) bool { return v > 0 && v <= mostWeight }

func (d *decoder) checkScenario(g given, s *Scenario) {
	d.require(g, "a scenario", "arrival", "mix")
	if !g.has("duration") && !g.has("jobs") {
		d.wrong(g.node, "a scenario needs duration or jobs, or both: the earlier one ends it")
	}
	if c := s.Arrival.Closed; c != nil && c.Clients > 0 && c.Clients < s.Tenants {
		d.wrong(g.of("tenants"), "with %d tenants there must be at least as many clients, not %d", s.Tenants, c.Clients)
	}
}
