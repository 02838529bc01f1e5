package search

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
)

func TestPlannerTriesPairsFirst(t *testing.T) {
	t.Parallel()
	for seed := range int64(5) {
		p := newPlanner([]Operation{{"submit", fault.Submissions, 1}, {"read", fault.Lookups, 2}}, 2, seed)
		left := map[string]bool{}
		for _, o := range p.operations {
			for _, a := range catalogue[o.Of] {
				for _, b := range catalogue[o.Of] {
					if s := row(o, 1, []fault.Effect{a, b}); causesRequest(&a) && cost(&a) < patientCost && s.failsInRow() <= 2 {
						left[s[0].kind()+fmt.Sprint(" then ", text(b))] = true
					}
				}
			}
		}
		for range 700 {
			s, ok := p.next()
			require.True(t, ok)
			require.LessOrEqual(t, s.failsInRow(), 2)
			for i, step := range s {
				switch {
				case step.Times > 1:
					delete(left, step.kind()+fmt.Sprint(" then ", text(step.Effect)))
				case i+1 < len(s) && s[i+1].Operation == step.Operation && s[i+1].Nth == step.Nth+1:
					delete(left, step.kind()+fmt.Sprint(" then ", text(s[i+1].Effect)))
				}
			}
		}
		require.Empty(t, left, "seed %d", seed)
	}
}

// A client may give up after a 500. If the client fails after the 500, the planner repeats the schedule without the 500.
func TestPlannerRepeatsTheRestOfAnAllowedFailure(t *testing.T) {
	t.Parallel()
	submit, read := Operation{"submit", fault.Submissions, 1}, Operation{"read", fault.Lookups, 2}
	s := newSearch(Config{Workers: 1})
	s.planner = newPlanner([]Operation{submit, read}, 2, 1)
	twice := row(read, 1, []fault.Effect{cut, cut})
	s.applyResult(&pending{schedule: append(Schedule{newStep(submit, 1, broken)}, twice...), trial: &Trial{Failed: "exit status 1"}})
	next, ok := s.planner.next()
	require.True(t, ok)
	require.Equal(t, twice.key(), next.key())
}
