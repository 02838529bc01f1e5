package scenario

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Decoding fills in defaults. It also sees values that the schema has refused, and
// takes what it can of them. The elements of lists return no error for those: the
// library would drop the element, and later ones would be at another index.

// defaults is a scenario before its file is read.
func defaults(file string) *Scenario {
	return &Scenario{
		Name: nameOf(file), Seed: 1, Drain: time.Minute, Tenants: 1, Pick: Weighted,
		Readers: Readers{Streams: 1, SlowPause: 100 * time.Millisecond}, Schedules: Schedules{Every: time.Second},
		Service: Service{Workers: "1", Concurrency: 100}, Expect: Expect{Accepted: 0.9},
	}
}

// UnmarshalYAML reads a duration, or two with dots between them.
func (r *Range) UnmarshalYAML(n *yaml.Node) error {
	*r, _ = parseRange(n.Value)
	return nil
}

func parseRange(text string) (r Range, err error) {
	low, high, two := strings.Cut(text, "..")
	if !two {
		high = low
	}
	if r.Min, err = time.ParseDuration(low); err != nil {
		return r, err
	}
	r.Max, err = time.ParseDuration(high)
	return r, err
}

// UnmarshalYAML reads a number or a percentage. What is neither is no share.
func (s *Share) UnmarshalYAML(n *yaml.Node) error {
	v := float(n, strings.TrimSuffix(n.Value, "%"))
	if strings.HasSuffix(n.Value, "%") {
		v /= 100
	}
	if *s = Share(v); v < 0 || v > 1 {
		*s = 0
	}
	return nil
}

// rate is a number per second, 5/s or 300/m.
type rate float64

func (r *rate) UnmarshalYAML(n *yaml.Node) error {
	number, unit, _ := strings.Cut(n.Value, "/")
	v := float(n, number)
	if unit == "m" {
		v /= 60
	}
	*r = rate(v)
	return nil
}

// float is the number of a node, or else of the text before its unit.
func float(n *yaml.Node, text string) (v float64) {
	if n.Decode(&v) != nil {
		v, _ = strconv.ParseFloat(text, 64)
	}
	return v
}

// UnmarshalYAML reads a phase: a rate that does not change is a ramp too.
func (p *Phase) UnmarshalYAML(n *yaml.Node) error {
	type plain Phase
	v := struct {
		*plain   `yaml:",inline"`
		Rate     rate
		From, To rate
		Arrivals string
	}{plain: (*plain)(p)}
	_ = n.Decode(&v)
	p.From, p.To = float64(v.Rate+v.From), float64(v.Rate+v.To)
	p.Poisson = v.Arrivals == "poisson"
	return nil
}

// kindList is a name, ALL or a list of names.
type kindList []string

func (l *kindList) UnmarshalYAML(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.SequenceNode:
		return n.Decode((*[]string)(l))
	case n.Value == "ALL":
		*l = workKinds()[1:]
	default:
		*l = kindList{n.Value}
	}
	return nil
}

// UnmarshalYAML reads an entry of the mix. A client that cancels, retries or duplicates does it with each job, once,
// unless the file says otherwise.
func (w *Work) UnmarshalYAML(n *yaml.Node) error {
	type plain Work
	*w = Work{
		Weight: 1, Type: Execute, Cancel: &Cancel{Share: 1}, Retry: &Retry{Share: 1, Max: 1},
		Duplicate: &Duplicate{Share: 1, Copies: 1, Key: SameKey},
	}
	v := struct {
		*plain      `yaml:",inline"`
		Kind, Kinds kindList
	}{plain: (*plain)(w)}
	_ = n.Decode(&v)
	w.Kinds = slices.Concat(v.Kind, v.Kinds)
	given := memberNames(n)
	if !slices.Contains(given, "cancel") {
		w.Cancel = nil
	}
	if !slices.Contains(given, "retry") {
		w.Retry = nil
	}
	if !slices.Contains(given, "duplicate") {
		w.Duplicate = nil
	}
	return nil
}

// UnmarshalYAML reads an answer. One without a share gets -1, which parser.answers completes.
func (a *Answer) UnmarshalYAML(n *yaml.Node) error {
	type plain Answer
	*a = Answer{Share: -1}
	_ = n.Decode((*plain)(a))
	if a.Status == 0 && !a.Hang && !a.Reset {
		a.Status = 200
	}
	return nil
}
