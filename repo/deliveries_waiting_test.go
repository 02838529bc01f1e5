package repo_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// waitingDeliveries walks over all deliveries that wait for another attempt.
func (f *fixture) waitingDeliveries(look, perEndpoint, limit int) (found []job.Delivery, calls int) {
	f.t.Helper()
	var at job.EndpointKey
	for {
		calls++
		require.Less(f.t, calls, 100, "the walk ends")
		some, last, err := f.store.WaitingDeliveries(f.ctx(), at, look, perEndpoint, limit, time.Second)
		require.NoError(f.t, err)
		require.LessOrEqual(f.t, len(some), limit)
		found = append(found, some...)
		if at = last; last == (job.EndpointKey{}) {
			return found, calls
		}
	}
}

func TestWaitingDeliveries(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hooks := []job.ID{f.subscribe(job.EventCreated), f.subscribe(job.EventCreated), f.subscribe(job.EventCreated)}
	for range 5 {
		f.submit()
	}
	found, _ := f.waitingDeliveries(100, 3, 100)
	require.Empty(t, found, "none was tried yet")
	next := map[job.ID]time.Time{}
	for _, hook := range hooks {
		for i, p := range f.claimAll(hook, 5) {
			recorded := f.record(refused(p, time.Duration(5-i)*time.Minute))
			next[p.ID] = *recorded.NextAttemptAt
			require.True(t, one[time.Time](f, `SELECT next_attempt_at FROM deliveries WHERE delivery_id = $1`, p.ID.String()).Equal(
				next[p.ID]))
		}
	}
	for _, page := range []struct{ look, limit, calls int }{{100, 100, 1}, {2, 100, 2}, {100, 4, 3}} {
		found, calls := f.waitingDeliveries(page.look, 3, page.limit)
		seen := map[job.ID][]job.Delivery{}
		for _, d := range found {
			require.Equal(t, []any{1, job.DeliveryPending, f.client}, []any{d.Attempts, d.State, d.ClientID})
			require.True(t, next[d.ID].Equal(*d.NextAttemptAt))
			require.NotEmpty(t, d.LastError)
			if !slices.ContainsFunc(seen[d.Endpoint], func(other job.Delivery) bool { return other.ID == d.ID }) {
				seen[d.Endpoint] = append(seen[d.Endpoint], d)
			}
		}
		for _, hook := range hooks {
			require.Len(t, seen[hook], 3, "of each endpoint no more: %+v", page)
			require.True(t, slices.IsSortedFunc(seen[hook], func(a, b job.Delivery) int {
				return a.NextAttemptAt.Compare(*b.NextAttemptAt)
			}), "the first ones")
			require.WithinDuration(t, time.Now().Add(time.Minute), *seen[hook][0].NextAttemptAt, 30*time.Second)
		}
		require.GreaterOrEqual(t, calls, page.calls)
	}
	f.patch(hooks[0], enabled(false))
	found, _ = f.waitingDeliveries(100, 3, 100)
	require.Len(t, found, 6, "not of one that is disabled")

	f.exec(`UPDATE deliveries SET next_attempt_at = now() - interval '1 min' WHERE attempts > 0`)
	found, _ = f.waitingDeliveries(100, 3, 100)
	require.Empty(t, found, "whoever looks for what is due finds these")
}

// Whoever claims too early learns how long to wait.
func TestClaimsTellWhenTheNextOneIsDue(t *testing.T) {
	t.Parallel()
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	claim := func() job.DeliveryClaim {
		t.Helper()
		c, err := f.store.ClaimDeliveries(f.ctx(), f.client, hook, 10, time.Hour)
		require.NoError(t, err)
		return c
	}
	f.submit()
	f.submit()
	first := claim()
	require.Len(t, first.Deliveries, 2)
	require.Zero(t, first.Next)
	f.record(refused(first.Deliveries[0], time.Hour))
	require.Equal(t, job.DeliveryClaim{Deliveries: nil}, claim(), "nothing is due soon")
	f.record(refused(first.Deliveries[1], 900*time.Millisecond))
	early := claim()
	require.Empty(t, early.Deliveries)
	require.Positive(t, early.Next)
	require.LessOrEqual(t, early.Next, 900*time.Millisecond)
	time.Sleep(early.Next)
	require.Len(t, claim().Deliveries, 1, "Postgres' clock has come to it")
}
