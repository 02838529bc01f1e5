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
	first, second := s.startWebhooks(limit), s.startWebhooks(limit)
	ids := u.submitMany(api, jobs, execute("WEBHOOK_SUCCESS"))
	s.await("SUCCEEDED", ids...)
	eventually(t, "what may be sent", func() bool { return len(greedy.all()) >= rate })
	id := other.submit(api, execute("WEBHOOK_SUCCESS"))
	eventually(t, "the other client's", func() bool { return len(healthy.of(id)) == len(life) })
	require.Equal(t, rate, len(greedy.all()), "of both processes together")
	eventually(t, "nothing is held for its turn", func() bool {
		return s.count(`SELECT count(*) FROM deliveries WHERE state = 'PENDING' AND claimed_until IS NULL AND attempts = 0`) ==
			2*jobs*len(life)-rate
	})

	for _, p := range []*proc{first, second} {
		p.terminate()
		require.Zero(t, p.exitCode())
	}
	s.startWebhooks()
	s.awaitDeliveries()
	require.Equal(t, 2*jobs*len(life), len(greedy.all()), "each once")
	require.Zero(t, s.count(`SELECT count(*) FROM deliveries WHERE attempts <> 1 OR state <> 'DELIVERED'`))
	s.checkInvariants()
}
