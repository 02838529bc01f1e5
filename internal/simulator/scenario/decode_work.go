package scenario

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// work reads an entry of the mix. The receivers and the pick are known already.
func (d *decoder) work(n *yaml.Node, s *Scenario) Work {
	w := Work{Weight: 1, Type: Execute}
	g := d.mapping("an entry of mix", n,
		member{"kind", func(name string, n *yaml.Node) {
			var kind string
			d.named(&kind, "work kind", "ALL stands for all 31", append([]string{allKinds}, kinds...))(name, n)
			w.Kinds = expand(kind)
		}},
		member{"kinds", func(name string, n *yaml.Node) { w.Kinds = d.kinds(name, n) }},
		member{"weight", d.number(&w.Weight, isWeight, "a number above 0, at most 1000000")},
		member{"type", d.choice(&w.Type, Execute, Deferred, EmitEvent)},
		member{"ahead", d.span(&w.Ahead, leastAhead, mostAhead)},
		member{"cancel", func(_ string, n *yaml.Node) { w.Cancel = d.cancel(n) }},
		member{"retry", func(_ string, n *yaml.Node) { w.Retry = d.retry(n) }},
		member{"duplicate", func(_ string, n *yaml.Node) { w.Duplicate = d.duplicate(n) }},
		member{"auto_retry", d.flag(&w.AutoRetry)},
		member{"batch", whole(d, &w.Batch, 1, mostItems)},
		member{"callback", func(name string, n *yaml.Node) { d.callback(name, n, &w.Callback, s.Receivers) }},
		member{"params_bytes", whole(d, &w.ParamsBytes, 0, mostParams)},
	)
	if n.Kind == yaml.MappingNode {
		d.checkWork(g, &w, s.Pick)
	}
	return w
}

func (d *decoder) checkWork(g given, w *Work, pick string) {
	if g.has("kind") && g.has("kinds") {
		d.wrong(g.of("kinds"), "an entry has one of kind and kinds")
	}
	if !g.has("type") || g.of("type").Value == w.Type { // else it was told
		d.checkType(g, w.Type)
	}
	if pick == InTurn && g.has("weight") {
		d.wrong(g.of("weight"), "weight has no meaning with pick: in_turn")
	}
	if w.Batch > 0 && w.Duplicate != nil && w.Duplicate.Key == DifferentKeys {
		d.wrong(g.of("duplicate"), "a batch is duplicated with key: same only")
	}
}

func (d *decoder) checkType(g given, jobType string) {
	hasKinds := g.has("kind") || g.has("kinds")
	switch {
	case jobType == EmitEvent && hasKinds:
		d.wrong(g.of("type"), "EMIT_EVENT publishes an event of the client's own and takes no kind")
	case jobType != EmitEvent && !hasKinds:
		d.wrong(g.node, "an entry needs the member kind or kinds")
	}
	switch {
	case jobType == Deferred && !g.has("ahead"):
		d.wrong(g.node, "DEFERRED needs the member ahead: how long after its submission the job is due")
	case jobType != Deferred && g.has("ahead"):
		d.wrong(g.of("ahead"), "ahead needs type: DEFERRED: other jobs run as soon as possible")
	}
}

func expand(kind string) []string {
	switch kind {
	case "":
		return nil
	case allKinds:
		return slices.Clone(kinds)
	}
	return []string{kind}
}

// named reads one of many names, too many to list them for each mistake: it
// tells the nearest.
func (d *decoder) named(into *string, what, hint string, allowed []string) read {
	return func(name string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			d.wrong(n, "%s: must be the name of a %s (%s), not %s", name, what, hint, shown(n))
			return
		}
		if !slices.Contains(allowed, n.Value) {
			near, _ := nearest(n.Value, allowed)
			d.wrong(n, "%s: unknown %s %s, the nearest is %s; %s", name, what, shown(n), near, hint)
			return
		}
		*into = n.Value
	}
}

func (d *decoder) kinds(list string, n *yaml.Node) (found []string) {
	if n.Kind == yaml.ScalarNode && n.Value == allKinds {
		return expand(allKinds)
	}
	if n.Kind == yaml.ScalarNode {
		d.wrong(n, "%s must be a list of work kinds or ALL, not %s; for a single one there is the member kind", list, shown(n))
		return nil
	}
	d.list(list, n, len(kinds), func(e *yaml.Node) {
		var kind string
		d.named(&kind, "work kind", "ALL, in place of the list, stands for all 31", kinds)(list, e)
		switch {
		case kind == "":
		case slices.Contains(found, kind):
			d.wrong(e, "%s has %s twice: give it an entry with more weight instead", list, kind)
		default:
			found = append(found, kind)
		}
	})
	return found
}

func (d *decoder) cancel(n *yaml.Node) *Cancel {
	c := &Cancel{Share: 1}
	g := d.mapping("cancel", n,
		member{"in", d.choice(&c.In, "CREATED", "QUEUED", "ASSIGNED", "RUNNING")},
		member{"after", d.span(&c.After, 0, mostPause)},
		member{"share", d.share(&c.Share)},
	)
	d.require(g, "cancel", "in")
	return c
}

func (d *decoder) retry(n *yaml.Node) *Retry {
	r := &Retry{Share: 1, Max: 1}
	d.mapping("retry", n,
		member{"share", d.share(&r.Share)},
		member{"max", whole(d, &r.Max, 1, mostRetries)},
	)
	return r
}

func (d *decoder) duplicate(n *yaml.Node) *Duplicate {
	c := &Duplicate{Share: 1, Copies: 1, Key: SameKey}
	d.mapping("duplicate", n,
		member{"share", d.share(&c.Share)},
		member{"copies", whole(d, &c.Copies, 1, mostCopies)},
		member{"key", d.choice(&c.Key, SameKey, DifferentKeys)},
		member{"at_once", d.flag(&c.AtOnce)},
	)
	return c
}

// callback reads the name of a receiver that is not registered: a registered
// one signs with its secret, which a callback does not have.
func (d *decoder) callback(name string, n *yaml.Node, into *string, receivers []Receiver) {
	var allowed []string
	for _, r := range receivers {
		if r.Callback && r.Name != "" {
			allowed = append(allowed, r.Name)
		}
	}
	switch {
	case n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || !receiverName.MatchString(n.Value):
		d.wrong(n, "%s must be the name of a receiver (%s), not %s", name, receiverRule, shown(n))
	case len(allowed) == 0:
		d.wrong(n, "%s needs a receiver of that name with callback: true, and there is none in receivers", name)
	case !slices.Contains(allowed, n.Value):
		d.wrong(n, "%s must name a receiver with callback: true (%s), not %s", name, strings.Join(allowed, ", "), shown(n))
	default:
		*into = n.Value
	}
}
