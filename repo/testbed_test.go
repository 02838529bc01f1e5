package repo_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// Requests that come together each get a number of their own, each rule counts what it is about, and a client has nothing of
// another one.
func TestFaultsAreCounted(t *testing.T) {
	t.Parallel()
	f := setup(t)
	other := newID()
	rule := func(n int, r testbed.Rule) testbed.Counted { return testbed.Counted{Rule: r, ID: newID(), Position: n} }
	rules := []testbed.Counted{
		rule(1, testbed.Rule{Match: testbed.Match{Operation: "submitJob", Nth: 3}, Effect: testbed.Effect{Status: 503}}),
		rule(2, testbed.Rule{Effect: testbed.Effect{Delay: 5}}),
		rule(3, testbed.Rule{Match: testbed.Match{Operation: "getJob"}, Effect: testbed.Effect{Status: 429}}),
	}
	require.NoError(t, f.store.ReplaceFaults(f.ctx(), f.client, 7, rules))
	require.NoError(t, f.store.ReplaceFaults(f.ctx(), other, 8, []testbed.Counted{rule(1, testbed.Rule{Effect: testbed.Effect{Status: 500}})}))

	const n = 40
	var group sync.WaitGroup
	seen := make(chan int64, n)
	for range n {
		group.Go(func() {
			found, err := f.store.CountFaults(f.ctx(), f.client, "submitJob")
			if err == nil && len(found) == 2 && found[0].ID == rules[0].ID && found[0].Match.Nth == 3 && found[0].Effect.Status == 503 {
				seen <- found[0].Seen
			}
		})
	}
	group.Wait()
	close(seen)
	numbers := map[int64]bool{}
	for i := range seen {
		numbers[i] = true
	}
	require.Len(t, numbers, n)
	require.NoError(t, f.store.FaultApplied(f.ctx(), f.client, rules[0]))
	list, err := f.store.Faults(f.ctx(), f.client)
	require.NoError(t, err)
	require.Len(t, list, 3)
	for i, want := range []int64{n, n, 0} {
		require.Equal(t, rules[i].ID, list[i].ID)
		require.Equal(t, want, list[i].Seen)
		require.EqualValues(t, 7, list[i].Seed)
	}
	require.EqualValues(t, 1, list[0].Applied)

	removed, err := f.store.RemoveFaults(f.ctx(), other, rules[0].ID)
	require.NoError(t, err)
	require.Zero(t, removed, "of another client")
	removed, err = f.store.RemoveFaults(f.ctx(), f.client, rules[0].ID)
	require.NoError(t, err)
	require.Equal(t, 1, removed)
	removed, err = f.store.RemoveFaults(f.ctx(), f.client, job.ID{})
	require.NoError(t, err)
	require.Equal(t, 2, removed)
	require.Equal(t, 1, f.count("testbed_faults"))
}

// Two that replace the rules at once leave those of one of them.
func TestFaultsAreReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	f := setup(t)
	var group sync.WaitGroup
	for size := 1; size <= 8; size++ {
		group.Go(func() {
			rules := make([]testbed.Counted, size)
			for i := range rules {
				rules[i] = testbed.Counted{Rule: testbed.Rule{Effect: testbed.Effect{Status: 503}}, ID: newID(), Position: i + 1}
			}
			if err := f.store.ReplaceFaults(f.ctx(), f.client, int64(size), rules); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	list, err := f.store.Faults(f.ctx(), f.client)
	require.NoError(t, err)
	require.EqualValues(t, list[0].Seed, len(list))
}
