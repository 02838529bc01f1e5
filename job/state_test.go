package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// The two lists of section 9: from each state those that are allowed, and those that are forbidden.
var section9 = map[job.State][2][]job.State{
	"CREATED":   {{"QUEUED", "CANCELED"}, {"CREATED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED"}},
	"QUEUED":    {{"ASSIGNED", "CANCELED"}, {"CREATED", "QUEUED", "RUNNING", "SUCCEEDED", "FAILED"}},
	"ASSIGNED":  {{"RUNNING", "CANCELED"}, {"CREATED", "QUEUED", "ASSIGNED", "SUCCEEDED", "FAILED"}},
	"RUNNING":   {{"SUCCEEDED", "FAILED", "CANCELED"}, {"CREATED", "QUEUED", "ASSIGNED", "RUNNING"}},
	"FAILED":    {{"QUEUED"}, {"CREATED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"}},
	"SUCCEEDED": {nil, {"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"}},
	"CANCELED":  {nil, {"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"}},
}

func TestTransitionTable(t *testing.T) {
	t.Parallel()
	require.Len(t, section9, len(job.States))
	pairs := 0
	for from, lists := range section9 {
		for i, list := range lists {
			for _, to := range list {
				pairs++
				require.Equal(t, i == 0, job.CanTransition(from, to), "%s -> %s", from, to)
			}
		}
	}
	require.Equal(t, 49, pairs, "each pair is in one of the lists")
}

func TestTransitionsOfUnknownStates(t *testing.T) {
	t.Parallel()
	for _, s := range job.States {
		for _, unknown := range []job.State{"", "PAUSED", "queued", "QUEUED "} {
			require.False(t, job.CanTransition(s, unknown))
			require.False(t, job.CanTransition(unknown, s))
		}
	}
}

func TestLeaseReturnIsOnePairOnly(t *testing.T) {
	t.Parallel()
	for _, from := range job.States {
		for _, to := range job.States {
			require.Equal(t, from == "ASSIGNED" && to == "QUEUED", job.IsLeaseReturn(from, to), "%s -> %s", from, to)
		}
	}
}

func TestStateGroups(t *testing.T) {
	t.Parallel()
	require.Equal(t, []job.State{"CREATED", "QUEUED", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "CANCELED"}, job.States)
	for s, want := range map[job.State]struct {
		valid, final, waiting, held bool
		outcome                     job.Outcome
	}{
		"CREATED":   {valid: true, waiting: true},
		"QUEUED":    {valid: true, waiting: true},
		"ASSIGNED":  {valid: true, held: true},
		"RUNNING":   {valid: true, held: true},
		"SUCCEEDED": {valid: true, final: true, outcome: "SUCCESS"},
		"FAILED":    {valid: true, final: true, outcome: "FAILED"},
		"CANCELED":  {valid: true, final: true, outcome: "CANCELED"},
		"":          {},
		"Running":   {},
	} {
		require.Equal(t, want.valid, s.Valid(), s)
		require.Equal(t, want.final, s.Final(), s)
		require.Equal(t, want.waiting, s.Waiting(), s)
		require.Equal(t, want.held, s.Held(), s)
		require.Equal(t, want.outcome, job.OutcomeOf(s), s)
	}
}

func TestEventOf(t *testing.T) {
	t.Parallel()
	byTarget := map[job.State]string{
		"QUEUED": "job.queued", "ASSIGNED": "job.assigned", "RUNNING": "job.running", "SUCCEEDED": "job.succeeded", "FAILED": "job.failed",
		"CANCELED": "job.canceled",
	}
	others := map[[2]job.State]string{
		{"", "CREATED"}: "job.created", {"FAILED", "QUEUED"}: "job.retried", {"ASSIGNED", "QUEUED"}: "job.lease_expired",
	}
	names := append([]job.State{"", "PAUSED"}, job.States...)
	for _, from := range names {
		for _, to := range names {
			want, ok := others[[2]job.State{from, to}]
			if !ok && job.CanTransition(from, to) {
				want = byTarget[to]
			}
			require.Equal(t, want, job.EventOf(from, to), "%q -> %q", from, to)
		}
	}
}
