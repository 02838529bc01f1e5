package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// transition is a pair of states by their names on the wire.
type transition struct{ from, to job.State }

// The two lists of section 9, word for word.
var (
	allowed = []transition{
		{"CREATED", "QUEUED"},
		{"CREATED", "CANCELED"},
		{"QUEUED", "ASSIGNED"},
		{"QUEUED", "CANCELED"},
		{"ASSIGNED", "RUNNING"},
		{"ASSIGNED", "CANCELED"},
		{"RUNNING", "SUCCEEDED"},
		{"RUNNING", "FAILED"},
		{"RUNNING", "CANCELED"},
		{"FAILED", "QUEUED"},
	}
	forbidden = []transition{
		{"CREATED", "CREATED"},
		{"CREATED", "ASSIGNED"},
		{"CREATED", "RUNNING"},
		{"CREATED", "SUCCEEDED"},
		{"CREATED", "FAILED"},
		{"QUEUED", "CREATED"},
		{"QUEUED", "QUEUED"},
		{"QUEUED", "RUNNING"},
		{"QUEUED", "SUCCEEDED"},
		{"QUEUED", "FAILED"},
		{"ASSIGNED", "CREATED"},
		{"ASSIGNED", "QUEUED"},
		{"ASSIGNED", "ASSIGNED"},
		{"ASSIGNED", "SUCCEEDED"},
		{"ASSIGNED", "FAILED"},
		{"RUNNING", "CREATED"},
		{"RUNNING", "QUEUED"},
		{"RUNNING", "ASSIGNED"},
		{"RUNNING", "RUNNING"},
		{"FAILED", "CREATED"},
		{"FAILED", "ASSIGNED"},
		{"FAILED", "RUNNING"},
		{"FAILED", "SUCCEEDED"},
		{"FAILED", "FAILED"},
		{"FAILED", "CANCELED"},
		{"SUCCEEDED", "CREATED"},
		{"SUCCEEDED", "QUEUED"},
		{"SUCCEEDED", "ASSIGNED"},
		{"SUCCEEDED", "RUNNING"},
		{"SUCCEEDED", "SUCCEEDED"},
		{"SUCCEEDED", "FAILED"},
		{"SUCCEEDED", "CANCELED"},
		{"CANCELED", "CREATED"},
		{"CANCELED", "QUEUED"},
		{"CANCELED", "ASSIGNED"},
		{"CANCELED", "RUNNING"},
		{"CANCELED", "SUCCEEDED"},
		{"CANCELED", "FAILED"},
		{"CANCELED", "CANCELED"},
	}
)

func TestTransitionTable(t *testing.T) {
	t.Parallel()
	seen := map[transition]bool{}
	check := func(list []transition, want bool) {
		for _, p := range list {
			require.False(t, seen[p], "%v is listed twice", p)
			seen[p] = true
			require.Equal(t, want, job.CanTransition(p.from, p.to), "%s -> %s", p.from, p.to)
		}
	}
	check(allowed, true)
	check(forbidden, false)
	for _, from := range job.States {
		for _, to := range job.States {
			require.True(t, seen[transition{from, to}], "%s -> %s is in neither list", from, to)
		}
	}
	require.Len(t, seen, 49)
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

func TestSources(t *testing.T) {
	t.Parallel()
	for to, want := range map[job.State][]job.State{
		"CREATED":   nil,
		"QUEUED":    {"CREATED", "FAILED"},
		"ASSIGNED":  {"QUEUED"},
		"RUNNING":   {"ASSIGNED"},
		"SUCCEEDED": {"RUNNING"},
		"FAILED":    {"RUNNING"},
		"CANCELED":  {"CREATED", "QUEUED", "ASSIGNED", "RUNNING"},
		"PAUSED":    nil,
	} {
		require.Equal(t, want, job.Sources(to), to)
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
	want := map[transition]string{
		{"", "CREATED"}:          "job.created",
		{"CREATED", "QUEUED"}:    "job.queued",
		{"CREATED", "CANCELED"}:  "job.canceled",
		{"QUEUED", "ASSIGNED"}:   "job.assigned",
		{"QUEUED", "CANCELED"}:   "job.canceled",
		{"ASSIGNED", "RUNNING"}:  "job.running",
		{"ASSIGNED", "CANCELED"}: "job.canceled",
		{"ASSIGNED", "QUEUED"}:   "job.lease_expired",
		{"RUNNING", "SUCCEEDED"}: "job.succeeded",
		{"RUNNING", "FAILED"}:    "job.failed",
		{"RUNNING", "CANCELED"}:  "job.canceled",
		{"FAILED", "QUEUED"}:     "job.retried",
	}
	names := append([]job.State{"", "PAUSED"}, job.States...)
	for _, from := range names {
		for _, to := range names {
			require.Equal(t, want[transition{from, to}], job.EventOf(from, to), "%q -> %q", from, to)
		}
	}
}
