package stack

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Chaos lists kinds of faults with their mean intervals.
type Chaos struct{ means []mean }

type mean struct {
	kind  faultKind
	every time.Duration
}

// Fault describes an injected fault, after it has ended.
type Fault struct {
	Kind      string
	Target    string // process, server or proxy, such as worker-2 or redis; "" if there was no target
	At, Until time.Time
	Count     int   // number of affected connections; 1 for a fault that does not affect connections
	Err       error // error while injecting or ending the fault
}

// FaultList lists the kinds of faults for a help text.
func FaultList() string {
	var b strings.Builder
	for _, k := range kinds {
		fmt.Fprintf(&b, "  %-12s %s\n", k.name, k.does)
	}
	return b.String()
}

// ParseChaos parses a list such as "kill=30s,cut=5s": kinds of faults, each with the mean interval between two faults of the kind. An empty
// text means no faults.
func ParseChaos(text string) (Chaos, error) {
	var c Chaos
	if strings.TrimSpace(text) == "" {
		return c, nil
	}
	for entry := range strings.SplitSeq(text, ",") {
		m, err := parseMean(strings.TrimSpace(entry))
		if err == nil && slices.ContainsFunc(c.means, func(other mean) bool { return other.kind.name == m.kind.name }) {
			err = fmt.Errorf("%s is listed twice", m.kind.name)
		}
		if err != nil {
			return Chaos{}, fmt.Errorf("chaos %q: %w", text, err)
		}
		c.means = append(c.means, m)
	}
	return c, nil
}

func parseMean(text string) (mean, error) {
	const shortest, longest = 100 * time.Millisecond, 24 * time.Hour
	name, interval, ok := strings.Cut(text, "=")
	if !ok {
		return mean{}, fmt.Errorf("%q must be a kind of fault with its mean interval, such as kill=30s", text)
	}
	var names []string
	for _, k := range kinds {
		names = append(names, k.name)
	}
	i := slices.Index(names, name)
	if i < 0 {
		return mean{}, fmt.Errorf("unknown fault %q; known faults: %s", name, strings.Join(names, ", "))
	}
	every, err := time.ParseDuration(interval)
	if err != nil || every < shortest || every > longest {
		return mean{}, fmt.Errorf("the mean interval of %s is %q, but must be a duration from %s to %s, such as 30s",
			name, interval, shortest, longest)
	}
	return mean{kind: kinds[i], every: every}, nil
}

// MovesClock reports whether a fault moves the service's clock. Such a fault needs Options.Clock.
func (c Chaos) MovesClock() bool {
	return slices.ContainsFunc(c.means, func(m mean) bool { return m.kind.needs == ourClock })
}

// Check returns an error if a fault is not possible in the stack.
func (c Chaos) Check(s *Stack) error {
	for _, m := range c.means {
		switch {
		case m.kind.needs == ourServers && s.o.foreign():
			return fmt.Errorf("chaos %s: the simulator injects faults only into servers that it started, not into others' servers", m.kind.name)
		case m.kind.needs == ourClock && (s.o.foreign() || !s.o.Clock):
			return fmt.Errorf("chaos %s: the clock can be moved only in a service that the simulator started as a test bed", m.kind.name)
		case m.kind.needs == ourProxies && len(s.faulty()) == 0:
			return fmt.Errorf("chaos %s: no connection goes through a proxy of the simulator", m.kind.name)
		}
	}
	return nil
}

// plannedFault has the time of a fault, measured from the start of Chaos.Run, and a seed for the fault's random choices.
type plannedFault struct {
	at   time.Duration
	seed uint64
}

// plan returns an endless sequence of faults of one kind. The intervals are exponentially distributed. The same arguments lead to the same
// sequence.
func plan(seed uint64, name string, every time.Duration) iter.Seq[plannedFault] {
	return func(yield func(plannedFault) bool) {
		h := fnv.New64a()
		_, _ = io.WriteString(h, name) // never fails
		rng := rand.New(rand.NewPCG(seed, h.Sum64()))
		for at := time.Duration(0); ; {
			at += time.Duration(rng.ExpFloat64() * float64(every))
			if !yield(plannedFault{at: at, seed: rng.Uint64()}) {
				return
			}
		}
	}
}

// Run injects faults until the context ends or the stack is closed. It returns when all faults have ended. The seed determines the times
// and the random choices of faults. Run calls `report` after each fault that had a target. Two calls of `report` never overlap.
func (c Chaos) Run(ctx context.Context, s *Stack, seed uint64, report func(Fault)) error {
	if err := c.Check(s); err != nil {
		return err
	}
	ctx, done, err := s.call(ctx)
	if err != nil {
		return err
	}
	defer done()
	var reporting sync.Mutex
	var running sync.WaitGroup
	start := time.Now()
	for _, m := range c.means {
		running.Go(func() {
			for next := range plan(seed, m.kind.name, m.every) {
				if !Sleep(ctx, time.Until(start.Add(next.at))) {
					return
				}
				if f, ok := m.kind.do(ctx, s, next.seed); ok {
					reporting.Lock()
					report(f)
					reporting.Unlock()
				}
			}
		})
	}
	<-ctx.Done()
	running.Wait()
	return nil
}
