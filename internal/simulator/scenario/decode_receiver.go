package scenario

import "go.yaml.in/yaml/v3"

func (d *decoder) receiver(n *yaml.Node, before []Receiver) (r Receiver) {
	var answers []*yaml.Node
	g := d.mapping("a receiver", n,
		member{"name", d.text(&r.Name, receiverName, receiverRule)},
		member{"events", func(name string, n *yaml.Node) { r.Events = d.events(name, n) }},
		member{"callback", d.flag(&r.Callback)},
		member{"answers", d.each(&answers)},
	)
	d.require(g, "a receiver", "name")
	if r.Callback && g.has("events") {
		d.wrong(g.of("events"), "a receiver with callback has no events: a job's callback gets each change of its state")
	}
	if !r.Callback && len(r.Events) == 0 {
		r.Events = []string{"*"}
	}
	for _, other := range before {
		if r.Name != "" && other.Name == r.Name {
			d.wrong(g.of("name"), "the name %q is taken: each receiver needs one of its own", r.Name)
		}
	}
	r.Answers = d.answers(answers)
	return r
}

func (d *decoder) events(list string, n *yaml.Node) (events []string) {
	d.list(list, n, len(eventNames), func(e *yaml.Node) {
		var event string
		d.named(&event, "event", "allowed: "+oneOf(eventNames), eventNames)(list, e)
		if event != "" {
			events = append(events, event)
		}
	})
	return events
}

// answers reads an endpoint's answers. One of them may leave its share out and
// gets what the others leave; without such a one the rest is 200 at once.
func (d *decoder) answers(nodes []*yaml.Node) []Answer {
	var answers []Answer
	rest, without := 1.0, -1
	for i, n := range nodes {
		a, g := d.answer(n)
		if g.has("share") {
			rest -= a.Share
		} else if without < 0 {
			without = i
		} else {
			d.wrong(n, "only one answer may leave its share out, and line %d did", nodes[without].Line)
		}
		answers = append(answers, a)
	}
	switch {
	case rest < -1e-9:
		d.wrong(nodes[0], "the shares of the answers add up to %.4g%%, which must be 100%% at most", 100*(1-rest))
	case without >= 0:
		answers[without].Share = max(rest, 0)
	case rest > 1e-9:
		answers = append(answers, Answer{Status: 200, Share: rest})
	}
	return answers
}

func (d *decoder) answer(n *yaml.Node) (Answer, given) {
	a := Answer{}
	g := d.mapping("an answer", n,
		member{"status", whole(d, &a.Status, 200, 599)},
		member{"after", d.duration(&a.After, 0, mostPause)},
		member{"hang", d.flag(&a.Hang)},
		member{"reset", d.flag(&a.Reset)},
		member{"share", d.share(&a.Share)},
	)
	silent := a.Hang || a.Reset
	switch {
	case a.Hang && a.Reset:
		d.wrong(g.of("reset"), "an answer has one of status, hang and reset")
	case silent && g.has("status"):
		d.wrong(g.of("status"), "an answer has one of status, hang and reset")
	case a.Hang && g.has("after"):
		d.wrong(g.of("after"), "an answer that hangs never comes, so it has no after")
	case !silent && !g.has("status"):
		a.Status = 200
	}
	return a, g
}
