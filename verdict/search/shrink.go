package search

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

const simplerTried = 4 // maximum number of simpler faults to try for a step

// pursue turns a schedule that broke the client into a finding. First, pursue leaves out the steps that did not happen, and repeats the
// schedule. If some of these runs do not break the client, pursue repeats the whole schedule. Then pursue shrinks the schedule, and
// repeats the shrunk schedule to confirm the break.
func (s *search) pursue(ctx context.Context, p *pending, b Break) error {
	schedule := p.schedule.happened(p.trial)
	if len(schedule) == 0 {
		schedule = p.schedule
	}
	hits, shown, err := s.repeat(ctx, schedule, b)
	if err == nil && hits < s.Support && schedule.key() != p.schedule.key() {
		schedule = p.schedule
		hits, shown, err = s.repeat(ctx, schedule, b)
	}
	if err != nil {
		return s.keepUnfinished(ctx, Finding{Schedule: schedule, Breaks: []Break{b}, Hits: 1, Runs: 1, Once: true}, err)
	}
	if hits < s.Support {
		s.flakyGroups[b.group()]++
		s.keep(Finding{Schedule: schedule, Breaks: append(sortFirst(shown, b), b), Hits: hits + 1, Runs: s.Support + 1}) // including p
		return nil
	}
	found := Finding{Schedule: schedule, Breaks: append(sortFirst(shown, b), b), Hits: hits, Runs: s.Support}
	smaller, err := s.shrink(ctx, schedule, b)
	if err != nil {
		return s.keepUnfinished(ctx, found, err)
	}
	if smaller.key() != schedule.key() {
		if hits, shown, err = s.repeat(ctx, smaller, b); err != nil {
			return s.keepUnfinished(ctx, found, err)
		}
		if hits == s.Support { // a smaller schedule must break the client in every run
			found.Schedule, found.Breaks = smaller, append(sortFirst(shown, b), b)
		}
	}
	s.keep(found)
	return nil
}

func sortFirst(shown []Break, b Break) []Break {
	return slices.Concat(
		slices.DeleteFunc(slices.Clone(shown), func(x Break) bool { return x.Rule != b.Rule }),
		slices.DeleteFunc(slices.Clone(shown), func(x Break) bool { return x.Rule == b.Rule }),
	)
}

// keepUnfinished handles the error that interrupted the work on a finding. If `ctx` has ended, it keeps the finding and returns nil.
// Otherwise it returns err.
func (s *search) keepUnfinished(ctx context.Context, f Finding, err error) error {
	if ctx.Err() == nil {
		return err
	}
	f.Cut = true
	s.keep(f)
	return nil
}

// keep adds a finding, or extends the finding with the same schedule.
func (s *search) keep(f Finding) {
	list := &s.report.Findings
	if f.Flaky() {
		list = &s.report.Flaky
	} else {
		for _, b := range f.Breaks {
			s.known[b.group()] = true
		}
	}
	for i := range *list {
		if same := &(*list)[i]; same.Schedule.key() == f.Schedule.key() {
			same.Breaks = distinct(append(same.Breaks, f.Breaks...))
			return
		}
	}
	f.Breaks, f.Words, f.Rules, f.Took = distinct(f.Breaks), f.Schedule.String(), f.Schedule.Rules(), time.Since(s.began)
	f.Name = name(f.Breaks[0].Rule, f.Schedule)
	*list = append(*list, f)
	if !f.Flaky() {
		s.fresh = append(s.fresh, f.Schedule)
	}
}

// name returns the file name of a schedule. The same rule and schedule have the same name in each search.
func name(rule string, s Schedule) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(s.key())) // never fails
	return fmt.Sprintf("%s-%04x", rule, sum.Sum32()&0xffff)
}

func distinct(breaks []Break) (all []Break) {
	for _, b := range breaks {
		if !slices.ContainsFunc(all, func(other Break) bool { return other.Rule == b.Rule }) {
			all = append(all, b)
		}
	}
	return all
}

// repeat runs a schedule s.Support times. `hits` is the number of runs that broke the same rule as b. `always` lists the breaks that
// occurred in every run.
func (s *search) repeat(ctx context.Context, schedule Schedule, b Break) (hits int, always []Break, err error) {
	runs, err := s.startAll(ctx, schedule, s.Support)
	for i, p := range runs {
		if <-p.done; cmp.Or(err, p.err) != nil {
			return 0, nil, cmp.Or(err, p.err)
		}
		shown := s.base.breaks(schedule, p.trial)
		if same(shown, b) {
			hits++
		}
		if i == 0 {
			always = shown
		}
		always = slices.DeleteFunc(always, func(one Break) bool { return !same(shown, one) })
	}
	return hits, always, err
}

func same(shown []Break, b Break) bool {
	return slices.ContainsFunc(shown, func(other Break) bool { return other.Rule == b.Rule })
}

func (s *search) startAll(ctx context.Context, schedule Schedule, times int) (runs []*pending, err error) {
	for range times {
		worker, err := s.worker(ctx)
		if err != nil {
			return runs, err
		}
		runs = append(runs, s.start(ctx, worker, schedule))
	}
	return runs, nil
}

// shrink removes or simplifies steps, if the client still breaks the same rule. On an error, it returns the smallest schedule so far.
func (s *search) shrink(ctx context.Context, schedule Schedule, b Break) (Schedule, error) {
	for {
		before := schedule.key()
		for _, candidates := range []func(Schedule) []Schedule{shortParts, withoutStep, earlier, simpler} {
			for {
				next, err := s.firstThatBreaks(ctx, candidates(schedule), b)
				if err != nil {
					return schedule, err
				}
				if next == nil {
					break
				}
				schedule = next
			}
		}
		if schedule.key() == before {
			return schedule, nil
		}
	}
}

// firstThatBreaks tries the candidates and returns the first that breaks the same rule, or nil. It skips candidates that were tried
// before and did not break the rule. It also skips candidates that contain the schedule of another finding, because they may show another
// bug.
func (s *search) firstThatBreaks(ctx context.Context, candidates []Schedule, b Break) (Schedule, error) {
	candidates = slices.DeleteFunc(candidates, func(c Schedule) bool {
		shown, tried := s.shown[c.key()]
		known := slices.ContainsFunc(s.report.Findings, func(f Finding) bool { return c.contains(f.Schedule) })
		return len(c) == 0 || known || tried && !same(shown, b)
	})
	ctx, cancel := context.WithCancel(ctx)
	var running []*pending
	defer func() {
		cancel()
		for _, p := range running {
			<-p.done
		}
	}()
	broke := func(p *pending) bool {
		if p.processed = true; p.err == nil {
			s.shown[p.schedule.key()] = s.base.breaks(p.schedule, p.trial)
		}
		return same(s.shown[p.schedule.key()], b)
	}
	for _, c := range candidates {
		worker, err := s.worker(ctx)
		if err != nil {
			return nil, err
		}
		for p := ended(running); p != nil; p = ended(running) {
			if p.err != nil || broke(p) {
				s.free <- worker
				return p.schedule, p.err
			}
		}
		running = append(running, s.start(ctx, worker, c))
	}
	for _, p := range running {
		if <-p.done; !p.processed && (p.err != nil || broke(p)) {
			return p.schedule, p.err
		}
	}
	return nil, nil
}

// shortParts returns all parts with one or two steps, neighbors first. Most mistakes need no more than two steps.
func shortParts(s Schedule) (all []Schedule) {
	if len(s) <= 3 { // one or two calls of withoutStep find these parts
		return nil
	}
	for apart := range s { // 0: a single step
		for i := range s[apart:] {
			all = append(all, s.withSteps(i, i+apart))
		}
	}
	return all
}

// withSteps returns a schedule with only the steps i and k of s. A removed step may have caused an extra request. In this case,
// withSteps lowers Nth of the later steps.
func (s Schedule) withSteps(i, k int) (part Schedule) {
	for _, at := range slices.Compact([]int{i, k}) {
		step := s[at]
		for n, before := range s[:at] {
			if n != i && before.Operation == step.Operation && causesRequest(&before.Effect) {
				step.Nth = max(1, step.Nth-before.Times)
			}
		}
		part = append(part, step)
	}
	return part
}

// withoutStep returns the schedules that lack one step, or one repetition of a step. A removed step can lead to two schedules: one with
// a lower Nth in later steps, and one with the old Nth.
func withoutStep(s Schedule) (all []Schedule) {
	for i, step := range s {
		rest := slices.Delete(slices.Clone(s), i, i+1)
		moved := slices.Clone(rest)
		for k := range moved {
			if moved[k].Operation == step.Operation && moved[k].Nth > step.Nth {
				moved[k].Nth -= step.Times
			}
		}
		if moved = sorted(moved); moved.key() != rest.key() && len(moved) == len(rest) {
			all = append(all, moved)
		}
		all = append(all, rest)
		if step.Times > 1 {
			once := slices.Clone(s)
			once[i].Times--
			all = append(all, once)
		}
	}
	return all
}

// earlier returns schedules in which Nth is one lower for all steps of one operation.
func earlier(s Schedule) (all []Schedule) {
	var operations []string
	for _, step := range s {
		if slices.Contains(operations, step.Operation) || step.Nth == 1 { // `operations` has the operation already, or Nth cannot be lower
			continue
		}
		operations = append(operations, step.Operation)
		sooner := slices.Clone(s)
		for k := range sooner {
			if sooner[k].Operation == step.Operation {
				sooner[k].Nth--
			}
		}
		if sooner[slices.IndexFunc(sooner, func(x Step) bool { return x.Operation == step.Operation })].Nth >= 1 {
			all = append(all, sooner)
		}
	}
	return all
}

// simpler returns the schedules in which one step has a simpler fault.
func simpler(s Schedule) (all []Schedule) {
	for i, step := range s {
		list := catalogue[step.Of]
		at := slices.IndexFunc(list, func(e fault.Effect) bool { return text(e) == text(step.Effect) })
		for _, e := range list[:max(0, min(at, simplerTried))] {
			if mayEndClient(&e) && !mayEndClient(&step.Effect) {
				continue
			}
			other := slices.Clone(s)
			other[i].Effect, other[i].name = e, ""
			all = append(all, other)
		}
	}
	return all
}
