package scenario

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

func defaults(file string) *Scenario {
	return &Scenario{
		Name: nameOf(file), Seed: 1, Drain: time.Minute, Tenants: 1, Pick: Weighted,
		Readers: Readers{Streams: 1, SlowPause: 100 * time.Millisecond}, Schedules: Schedules{Every: time.Second},
		Service: Service{Workers: "1", Concurrency: 100}, Expect: Expect{Accepted: 0.9},
	}
}

// UnmarshalYAML reads a duration, or two durations with ".." between them.
func (r *Range) UnmarshalYAML(n *yaml.Node) (err error) {
	*r, err = parseRange(n.Value)
	return err
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

// UnmarshalYAML reads a number or a percentage.
func (s *Share) UnmarshalYAML(n *yaml.Node) error { return quotient(n.Value, "%", 100, (*float64)(s)) }

// rate is a number per second. A file writes 5/s, 300/m (per minute), or only the number.
type rate float64

func (r *rate) UnmarshalYAML(n *yaml.Node) error {
	return quotient(strings.TrimSuffix(n.Value, "/s"), "/m", 60, (*float64)(r))
}

// quotient parses a number that may end with a unit. A number with the unit is divided by `divisor`.
func quotient(text, unit string, divisor float64, to *float64) (err error) {
	number, divided := strings.CutSuffix(text, unit)
	if *to, err = strconv.ParseFloat(strings.ReplaceAll(number, "_", ""), 64); divided {
		*to /= divisor
	}
	return err
}

// UnmarshalYAML reads a phase. A constant rate is stored as equal From and To.
func (p *Phase) UnmarshalYAML(n *yaml.Node) error {
	type plain Phase
	v := struct {
		*plain   `yaml:",inline"`
		Rate     rate
		From, To rate
		Arrivals string
	}{plain: (*plain)(p)}
	if err := n.Decode(&v); err != nil {
		return err
	}
	p.From, p.To = float64(v.Rate+v.From), float64(v.Rate+v.To)
	p.Poisson = v.Arrivals == "poisson"
	return nil
}

// kindList reads one work kind, ALL, or a list of work kinds.
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

// UnmarshalYAML reads an entry of the mix.
func (w *Work) UnmarshalYAML(n *yaml.Node) error {
	type plain Work
	*w = Work{Weight: 1, Type: Execute}
	v := struct {
		*plain      `yaml:",inline"`
		Kind, Kinds kindList
	}{plain: (*plain)(w)}
	err := n.Decode(&v)
	w.Kinds = slices.Concat(v.Kind, v.Kinds)
	return err
}

// UnmarshalYAML reads a cancel. By default, share is 1.
func (c *Cancel) UnmarshalYAML(n *yaml.Node) error {
	type plain Cancel
	*c = Cancel{Share: 1}
	return n.Decode((*plain)(c))
}

// UnmarshalYAML reads a retry. By default, share and max are 1.
func (r *Retry) UnmarshalYAML(n *yaml.Node) error {
	type plain Retry
	*r = Retry{Share: 1, Max: 1}
	return n.Decode((*plain)(r))
}

// UnmarshalYAML reads a duplicate. By default, each request is repeated once with the same key.
func (d *Duplicate) UnmarshalYAML(n *yaml.Node) error {
	type plain Duplicate
	*d = Duplicate{Share: 1, Copies: 1, Key: SameKey}
	return n.Decode((*plain)(d))
}

// UnmarshalYAML reads an answer. A missing share becomes -1, which parser.answers replaces later.
func (a *Answer) UnmarshalYAML(n *yaml.Node) error {
	type plain Answer
	*a = Answer{Share: -1}
	err := n.Decode((*plain)(a))
	if a.Status == 0 && !a.Hang && !a.Reset {
		a.Status = 200
	}
	return err
}
