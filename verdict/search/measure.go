package search

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func (s *search) measure(ctx context.Context) error {
	runs, err := s.startAll(ctx, nil, max(baselineTrials, s.Workers)) // as parallel as the search, so that times are comparable
	for _, p := range runs {
		<-p.done
		if err = cmp.Or(err, p.err); errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			return errors.New("the time budget ran out during the first run, which has no faults")
		}
	}
	if err != nil {
		return err
	}
	for _, p := range runs {
		t := p.trial
		if t.Failed != "" {
			return errors.Join(ErrBroken, errors.New(strings.TrimSuffix("it failed ("+t.Failed+"): "+t.LastLine, ": ")))
		}
		for _, r := range t.Results {
			if r.Status == verdict.Fail {
				return errors.Join(ErrBroken, errors.New("it breaks "+r.Rule))
			}
		}
		s.base.took = max(s.base.took, t.Took)
	}
	s.base.learns = !slices.ContainsFunc(runs, func(p *pending) bool { return !p.trial.learns() })
	s.base.jobs = runs[0].trial.jobs()
	if slices.ContainsFunc(runs, func(p *pending) bool { return p.trial.jobs() != s.base.jobs }) {
		s.base.jobs = 0
	}
	s.report.Operations = operations(runs[0].trial.Entries)
	if len(runs[0].trial.Entries) == 0 {
		return ErrSilent
	}
	if len(s.report.Operations) == 0 {
		return errors.New("no request of the client is a known operation: describe the API with --api or --openapi")
	}
	return nil
}

// operations counts the requests of each operation, in the order in which the operations first occur.
func operations(entries []verdict.Entry) (all []Operation) {
	for _, e := range entries {
		at := slices.IndexFunc(all, func(o Operation) bool { return o.Name == e.Operation })
		switch {
		case e.Operation == "":
		case at < 0:
			all = append(all, Operation{e.Operation, e.Of, 1})
		default:
			all[at].Requests++
		}
	}
	return all
}

// Replay runs the client under each list of rules. For each list, it returns the problems that the run revealed.
func Replay(ctx context.Context, c Config, lists [][]fault.Rule) ([][]Break, error) {
	s := newSearch(c)
	if err := s.measure(ctx); err != nil {
		return nil, err
	}
	all := make([][]Break, len(lists))
	for i, rules := range lists {
		var schedule Schedule // the rules as a schedule, which limit() and breaks() need
		for _, r := range rules {
			schedule = append(schedule, Step{Operation: r.Match.Operation, Nth: r.Match.Nth, Times: max(1, r.Match.Times), Effect: r.Effect})
		}
		t, err := s.Run(ctx, 0, rules, s.limit(schedule))
		if err != nil {
			return nil, err
		}
		all[i] = s.base.breaks(schedule, t)
	}
	return all, nil
}
