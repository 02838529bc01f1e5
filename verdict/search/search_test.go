package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

type happened struct {
	operation string
	job       int
	effect    fault.Effect
}

type simulated struct {
	mistake func(met []happened) (rule string)
	mu      sync.Mutex
	ran     []string
}

func (c *simulated) run(_ context.Context, _ int, rules []fault.Rule, _ time.Duration) (*Trial, error) {
	c.mu.Lock()
	c.ran = append(c.ran, text(rules))
	c.mu.Unlock()
	t, counts := &Trial{Took: time.Millisecond}, map[string]int{}
	var faults []happened
	request := func(operation string, of fault.Use, job int) {
		for tries := 0; ; tries++ {
			counts[operation]++
			e := effectAt(rules, operation, counts[operation], tries)
			entry := verdict.Entry{Operation: operation}
			if e != nil {
				entry = met(operation, *e)
				faults = append(faults, happened{operation, job, *e})
			}
			entry.Of, entry.Job = of, fmt.Sprint(job)
			t.Entries = append(t.Entries, entry)
			if e == nil || !failing(e) {
				return
			}
		}
	}
	for job := range 2 {
		request("submit", fault.Submissions, job)
		for range 3 {
			request("read", fault.Lookups, job)
		}
	}
	switch rule := c.mistake(faults); rule {
	case "":
	case commandFails:
		t.Failed, t.LastLine = "exit status 1", "it failed"
	default:
		t.Results = []verdict.Result{{Rule: rule, Status: verdict.Fail, Evidence: []verdict.Evidence{{Found: "wrong"}}}}
	}
	return t, nil
}

// `tries` is the number of earlier tries of the request.
func effectAt(rules []fault.Rule, operation string, nth, tries int) *fault.Effect {
	for _, r := range rules {
		m := r.Match
		if m.Operation == operation && (nth == m.Nth || m.Same && nth > m.Nth && nth < m.Nth+m.Times && tries >= nth-m.Nth) {
			return &r.Effect
		}
	}
	return nil
}

func searched(t *testing.T, seed int64, workers int, first bool, mistake func([]happened) string) (*Report, *simulated) {
	t.Helper()
	c := &simulated{mistake: mistake}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report, err := Search(ctx, Config{
		Seed: seed, Workers: workers, Support: 3, InRow: 2, First: first, Run: c.run,
		Progress: func(p Progress) {
			if p.Trials > 1_000 {
				cancel()
			}
		},
	})
	require.NoError(t, err)
	return report, c
}

func inOrder(met []happened, want ...func(happened) bool) bool {
	for _, h := range met {
		if len(want) > 0 && want[0](h) {
			want = want[1:]
		}
	}
	return len(want) == 0
}

func isLost(h happened) bool    { return h.effect.Close == fault.AfterCommit }
func isRefused(h happened) bool { return h.effect.Status >= 500 }
func isReset(h happened) bool   { return h.effect.Close == fault.CloseBefore }

func sizeOf(s Schedule) (n int) {
	for _, step := range s {
		n += step.Times
	}
	return n
}

func TestSearchFindsAndShrinks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		steps   int
		mistake func([]happened) bool
	}{
		"one fault": {1, func(met []happened) bool { return inOrder(met, isReset) }},
		"a lost response and a refused retry": {2, func(met []happened) bool {
			for i := range met[:max(0, len(met)-1)] {
				if isLost(met[i]) && isRefused(met[i+1]) && met[i].job == met[i+1].job && met[i+1].operation == "submit" {
					return true
				}
			}
			return false
		}},
		"one fault of each operation": {2, func(met []happened) bool {
			return inOrder(met, isLost, func(h happened) bool { return h.operation == "read" && isReset(h) })
		}},
		"a dead connection and a redirect": {2, func(met []happened) bool {
			return inOrder(met, func(h happened) bool { return h.effect.NextRequest != "" }, func(h happened) bool { return h.effect.Moved != 0 })
		}},
		"three faults apart from each other": {3, func(met []happened) bool {
			return inOrder(met, isRefused, func(h happened) bool { return h.operation == "read" && isReset(h) }, isRefused)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range int64(5) {
				report, _ := searched(t, seed, 4, true, func(met []happened) string {
					if c.mistake(met) {
						return "no-duplicates"
					}
					return ""
				})
				require.Len(t, report.Findings, 1, "seed %d", seed)
				f := report.Findings[0]
				require.Equal(t, c.steps, sizeOf(f.Schedule), "seed %d: %s", seed, f.Words)
				require.Equal(t, []int{3, 3}, []int{f.Hits, f.Runs})
			}
		})
	}
}

func TestSearchFindsNothingInCorrectClient(t *testing.T) {
	t.Parallel()
	report, _ := searched(t, 1, 4, false, func([]happened) string { return "" })
	require.Empty(t, report.All())
	require.Equal(t, []Operation{{"submit", fault.Submissions, 2}, {"read", fault.Lookups, 6}}, report.Operations)
	for use, effects := range map[string][]fault.Effect{"submit": catalogue[fault.Submissions], "read": catalogue[fault.Lookups]} {
		for _, e := range effects {
			require.True(t, slices.ContainsFunc(report.Cells, func(c Tried) bool {
				return c.Operation == use && c.Fault == strings.Join(e.Kinds(), ", ") && c.Trials > 0 && c.Broke == 0
			}), "%s: %v", use, e.Kinds())
		}
	}
}

// The search reports two mistakes as two findings. It tries no schedule that contains a known finding.
func TestSearchSeparatesMistakes(t *testing.T) {
	t.Parallel()
	report, c := searched(t, 2, 4, false, func(met []happened) string {
		switch {
		case inOrder(met, func(h happened) bool { return h.operation == "read" && isRefused(h) && h.effect.RetryAfter == nil }):
			return "backoff"
		case inOrder(met, isLost, isReset):
			return commandFails
		}
		return ""
	})
	var rules []string
	for _, f := range report.Findings {
		rules = append(rules, f.Breaks[0].Rule)
	}
	slices.Sort(rules)
	require.Equal(t, []string{"backoff", commandFails}, slices.Compact(rules))
	require.Empty(t, report.Flaky)
	require.Len(t, rules, 2, "%+v", report.Findings)
	known := report.Findings[0].Schedule.key()
	require.Less(t, slices.Index(c.ran, known), len(c.ran)-1)
}

func TestSearchSeparatesFlakySchedules(t *testing.T) {
	t.Parallel()
	broke := 0
	var mu sync.Mutex
	report, _ := searched(t, 1, 1, false, func(met []happened) string {
		mu.Lock()
		defer mu.Unlock()
		if inOrder(met, isLost) {
			if broke++; broke%2 == 1 {
				return "no-duplicates"
			}
		}
		return ""
	})
	require.Empty(t, report.Findings)
	require.NotEmpty(t, report.Flaky)
	for _, f := range report.Flaky {
		require.Less(t, f.Hits, f.Runs)
	}
}

func TestSearchIsDeterministic(t *testing.T) {
	t.Parallel()
	mistake := func(met []happened) string {
		if inOrder(met, isLost, isRefused) {
			return "no-duplicates"
		}
		return ""
	}
	_, one := searched(t, 7, 1, true, mistake)
	_, same := searched(t, 7, 1, true, mistake)
	report, many := searched(t, 7, 8, true, mistake)
	require.Equal(t, one.ran, same.ran)
	require.Subset(t, many.ran, one.ran) // more workers try more candidates at once
	require.NotEmpty(t, report.Findings)
}

// A client may break a rule by chance. So a schedule is no finding before it has run a second time.
func TestUnrepeatedBreakIsNoFinding(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &simulated{mistake: func(met []happened) string {
		if inOrder(met, isLost) {
			return "no-duplicates"
		}
		return ""
	}}
	report, err := Search(ctx, Config{Workers: 1, Support: 3, InRow: 2, Run: c.run, Progress: func(p Progress) {
		if p.Shrinking != "" { // the search is about to run the schedule again
			cancel()
		}
	}})
	require.NoError(t, err)
	require.Empty(t, report.Findings)
	require.Len(t, report.Flaky, 1)
	require.Equal(t, "The client broke in 1 run; the search ended before the sequence was repeated", report.Flaky[0].Rate())
}

func TestFlakySmallerScheduleIsNotKept(t *testing.T) {
	t.Parallel()
	broken, smaller := Break{Rule: "no-duplicates"}, 0
	submit := Operation{"submit", fault.Submissions, 2}
	both := Schedule{newStep(submit, 1, full), newStep(submit, 2, full)}
	run := func(_ context.Context, _ int, rules []fault.Rule, _ time.Duration) (*Trial, error) {
		if len(rules) < len(both) {
			smaller++
		}
		if len(rules) == len(both) || smaller == 1 { // the first run of a smaller schedule breaks the client, all later ones do not
			return &Trial{Results: []verdict.Result{{Rule: broken.Rule, Status: verdict.Fail, Evidence: []verdict.Evidence{{}}}}}, nil
		}
		return &Trial{}, nil
	}
	s := newSearch(Config{Workers: 1, Support: 3, InRow: 2, Run: run})
	s.planner = newPlanner([]Operation{submit}, 2, 1)
	require.NoError(t, s.pursue(t.Context(), &pending{schedule: both, trial: &Trial{}}, broken))
	require.Greater(t, smaller, 1)
	require.Len(t, s.report.Findings, 1)
	require.Equal(t, both.key(), s.report.Findings[0].Schedule.key())
	require.Equal(t, 3, s.report.Findings[0].Hits)
}

func TestSearchRefusesABrokenClient(t *testing.T) {
	t.Parallel()
	run := func(t *Trial) func(context.Context, int, []fault.Rule, time.Duration) (*Trial, error) {
		return func(context.Context, int, []fault.Rule, time.Duration) (*Trial, error) { return t, nil }
	}
	for name, trial := range map[string]*Trial{
		"it fails":         {Failed: "exit status 1"},
		"it breaks a rule": {Results: []verdict.Result{{Rule: "no-key-in-url", Status: verdict.Fail}}},
	} {
		_, err := Search(t.Context(), Config{Workers: 1, Support: 1, InRow: 1, Run: run(trial), Progress: func(Progress) {}})
		require.ErrorIs(t, err, ErrBroken, name)
	}
	_, err := Search(t.Context(), Config{Workers: 1, Run: run(&Trial{}), Progress: func(Progress) {}})
	require.ErrorIs(t, err, ErrSilent)
	unknown := &Trial{Entries: []verdict.Entry{{}}}
	_, err = Search(t.Context(), Config{Workers: 1, Run: run(unknown), Progress: func(Progress) {}})
	require.ErrorContains(t, err, "describe the API")
	failed := errors.New("the service is gone")
	_, err = Search(t.Context(), Config{
		Workers: 1, Progress: func(Progress) {},
		Run: func(context.Context, int, []fault.Rule, time.Duration) (*Trial, error) { return nil, failed },
	})
	require.ErrorIs(t, err, failed)
}
