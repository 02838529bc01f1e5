package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// FORGERUN_WEBHOOK_CLIENT_RATE holds for a client over all processes. What is
// beyond waits: it is not lost, no attempt is used up, and others do not wait.
func TestDeliveriesPerClientAndMinute(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api := s.startLeader()
	s.startWorker()
	u, other := s.newUser(api), s.newUser(api)
	greedy, healthy := newReceiver(t, nil), newReceiver(t, nil)
	u.subscribe(api, greedy.url)
	u.subscribe(api, greedy.url+"/too")
	other.subscribe(api, healthy.url)
	const rate, jobs = 20, 8
	limit := env{"FORGERUN_WEBHOOK_CLIENT_RATE": "20"}
	first := s.startWebhooks(limit)
	ids := u.submitMany(api, jobs, execute("WEBHOOK_SUCCESS"))
	s.await("SUCCEEDED", ids...)
	const left = 2*jobs*5 - rate // a life has five events
	untouched := func() bool {
		return s.count(`SELECT count(*) FROM deliveries WHERE state = 'PENDING' AND claimed_until IS NULL AND attempts = 0`) == left
	}
	eventually(t, "what may be sent is, and nothing is held for its turn", untouched)
	first.terminate()
	require.Zero(t, first.exitCode())

	const claims = `SELECT sum(dispatch)::int FROM deliveries WHERE state = 'PENDING'`
	before := s.count(claims)
	second := s.startWebhooks(limit)
	eventually(t, "the second process tries", func() bool { return s.count(claims) > before && untouched() })
	id := other.submit(api, execute("WEBHOOK_SUCCESS"))
	eventually(t, "the other client's", func() bool { return len(healthy.of(id)) == len(life) })
	require.Equal(t, rate, len(greedy.all()), "of both processes together")
	eventually(t, "what is over the rate waits", untouched)
	second.terminate()
	require.Zero(t, second.exitCode())

	s.startWebhooks()
	s.awaitDeliveries()
	require.Equal(t, 2*jobs*len(life), len(greedy.all()), "each once")
	require.Zero(t, s.count(`SELECT count(*) FROM deliveries WHERE attempts <> 1 OR state <> 'DELIVERED'`))
	s.checkInvariants()
}
