package scenario

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The forms of scalars. The schema has the same patterns.
var (
	durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)
	rateForm     = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?)/(s|m)$`)
	percentForm  = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?)%$`)
)

func (d *decoder) text(into *string, form *regexp.Regexp, allowed string) read {
	return func(name string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || !form.MatchString(n.Value) {
			d.wrong(n, "%s must be %s, not %s", name, allowed, shown(n))
			return
		}
		*into = n.Value
	}
}

func (d *decoder) choice(into *string, allowed ...string) read {
	return func(name string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || !slices.Contains(allowed, n.Value) {
			d.wrong(n, "%s must be %s, not %s", name, oneOf(allowed), shown(n))
			return
		}
		*into = n.Value
	}
}

func oneOf(allowed []string) string {
	last := len(allowed) - 1
	return strings.Join(allowed[:last], ", ") + " or " + allowed[last]
}

func (d *decoder) flag(into *bool) read {
	return func(name string, n *yaml.Node) {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(into) != nil {
			d.wrong(n, "%s must be true or false, not %s", name, shown(n))
		}
	}
}

// number is any number of YAML but the infinite ones and those that are none.
func number(n *yaml.Node) (float64, bool) {
	if n.Kind != yaml.ScalarNode || (n.ShortTag() != "!!int" && n.ShortTag() != "!!float") {
		return 0, false
	}
	var v float64
	if n.Decode(&v) != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	return v, true
}

// whole reads a number up to 2^53, within which a float64 has all of them.
func whole[T int | int64](d *decoder, into *T, least, most T) read {
	return func(name string, n *yaml.Node) {
		v, ok := number(n)
		if !ok || v != math.Trunc(v) || v < float64(least) || v > float64(most) {
			d.wrong(n, "%s must be a whole number from %d to %d, not %s", name, least, most, shown(n))
			return
		}
		*into = T(v)
	}
}

func (d *decoder) seed(into *uint64) read {
	return func(name string, n *yaml.Node) {
		var v uint64
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || n.Decode(&v) != nil {
			d.wrong(n, "%s must be a whole number from 0 to %d, not %s", name, uint64(math.MaxUint64), shown(n))
			return
		}
		*into = v
	}
}

func (d *decoder) number(into *float64, ok func(float64) bool, allowed string) read {
	return func(name string, n *yaml.Node) {
		v, isNumber := number(n)
		if !isNumber || !ok(v) {
			d.wrong(n, "%s must be %s, not %s", name, allowed, shown(n))
			return
		}
		*into = v
	}
}

func (d *decoder) duration(into *time.Duration, least, most time.Duration) read {
	return func(name string, n *yaml.Node) {
		v, ok := parseDuration(n)
		if !ok || v < least || v > most {
			d.wrong(n, "%s must be a duration from %s to %s, such as 500ms or 1m30s, not %s",
				name, brief(least), brief(most), shown(n))
			return
		}
		*into = v
	}
}

func parseDuration(n *yaml.Node) (time.Duration, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		return 0, false
	}
	return durationOf(n.Value)
}

func durationOf(text string) (time.Duration, bool) {
	if len(text) > longestName || !durationForm.MatchString(text) {
		return 0, false
	}
	v, err := time.ParseDuration(text)
	return v, err == nil
}

// brief writes a duration without zeros at its end: 24h, not 24h0m0s.
func brief(v time.Duration) string {
	text := v.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// span reads a duration, or two with dots between them.
func (d *decoder) span(into *Range, least, most time.Duration) read {
	return func(name string, n *yaml.Node) {
		low, high, two := strings.Cut(n.Value, "..")
		if !two {
			high = low
		}
		from, ok1 := durationOf(low)
		to, ok2 := durationOf(high)
		isText := n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str"
		if !isText || !ok1 || !ok2 || from < least || to > most || from > to {
			d.wrong(n, "%s must be a duration or a range of them, such as 5s or 5s..20s, from %s to %s, not %s",
				name, brief(least), brief(most), shown(n))
			return
		}
		*into = Range{from, to}
	}
}

// The bounds of rates, per second.
const (
	leastRate = 0.001
	mostRate  = 1_000_000
)

func (d *decoder) rate(into *float64) read {
	return func(name string, n *yaml.Node) {
		v, ok := parseRate(n)
		if !ok || v > mostRate || (v != 0 && v < leastRate) {
			d.wrong(n, "%s must be jobs per second, such as 200 or 200/s, or per minute, such as 30/m: 0, or from %v to %d per second, not %s",
				name, leastRate, mostRate, shown(n))
			return
		}
		*into = v
	}
}

func parseRate(n *yaml.Node) (float64, bool) {
	if v, ok := number(n); ok {
		return v, v >= 0
	}
	parts := rateForm.FindStringSubmatch(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || parts == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(parts[1], 64)
	if parts[3] == "m" {
		v /= 60
	}
	return v, err == nil
}

func (d *decoder) share(into *float64) read {
	return func(name string, n *yaml.Node) {
		v, ok := parseShare(n)
		if !ok || v < 0 || v > 1 {
			d.wrong(n, "%s must be a share from 0%% to 100%%, such as 5%% or 0.05, not %s", name, shown(n))
			return
		}
		*into = v
	}
}

func parseShare(n *yaml.Node) (float64, bool) {
	if v, ok := number(n); ok {
		return v, true
	}
	parts := percentForm.FindStringSubmatch(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" || parts == nil {
		return 0, false
	}
	v, err := strconv.ParseFloat(parts[1], 64)
	return v / 100, err == nil
}

// scalar reads a value of any type as it was written.
func scalar(n *yaml.Node) (string, error) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return "", fmt.Errorf("must be text, a number, true or false, not %s", shown(n))
	}
	return n.Value, nil
}
