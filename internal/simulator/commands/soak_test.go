//go:build slow

package commands

import (
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/simulator/trial"
	"github.com/forgerun/forgerun/internal/testkit"
)

// TestRunSoakUnderFaults is the whole thing: a mixed load of several tenants,
// workers that come and go, and faults of each kind on everything, after which
// every promise must have been kept. The seed makes requests and faults the same
// each time.
func TestRunSoakUnderFaults(t *testing.T) {
	// Not beside other tests: what it proves depends on how much is done in its time.
	report := runScenario(t, "soak", "--duration", "60s", "--seed", "7", "--workers", "1..3",
		"--chaos", "kill=8s,stop=15s,term=20s,flush=20s,redis=30s,redis-pause=30s,redis-full=40s,postgres=40s,cut=2s,lose=3s,slow=10s,stall=20s")
	require.Greater(t, report.Totals.Faults, 100)
	require.Greater(t, len(report.FaultKinds), 8, "faults of nearly all kinds")
	require.Greater(t, report.Totals.Finished["SUCCEEDED"], 1000)
}

// TestRunSoakWithAClockThatJumps is the same for a service whose clock jumps, stands still and runs at other rates, beside faults of
// other kinds: nothing starts before its time, and what has become due has ended.
func TestRunSoakWithAClockThatJumps(t *testing.T) {
	// Not beside other tests, as above.
	report := runScenario(t, "moved-clock", "--seed", "7", "--chaos", "clock=700ms,kill=6s,flush=10s,cut=2s,lose=3s")
	require.Greater(t, report.Totals.Finished["SUCCEEDED"], 50)
	moves := map[string]int{}
	for _, f := range report.Faults {
		if f.Kind == "clock" {
			what, _, _ := strings.Cut(strings.TrimPrefix(f.Target, "clock, "), " ")
			moves[what]++
		}
	}
	require.Len(t, moves, 3, "it jumped, stood still and ran at another rate: %v", moves)
}

const crashingLoad = `
duration: 10s
drain: 5s
arrival: {open: [{rate: 40/s}]}
mix: [{kind: SUCCESS_FAST}]
chaos: postgres=2s
service: {workers: "1", concurrency: 20, time_scale: 0.01}
`

// A Postgres that loses commits loses accepted jobs when it crashes: whatever
// else holds, the judge must say so.
func TestTheJudgeSeesAPostgresThatLosesCommits(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("crashing.yaml", []byte(crashingLoad))
	require.NoError(t, err)
	tr := trial.New(trial.Options{
		Binary: testkit.Program(t, "forgerun"), Out: t.TempDir(), Lease: 3 * time.Second, Sample: 1000, ReceiverAddr: "127.0.0.1:0",
		Scenario: s, Stdout: io.Discard, Stderr: io.Discard,
	})
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		require.NoError(t, os.RemoveAll(tr.Dir()))
	})
	require.NoError(t, tr.Prepare(t.Context()))
	db, err := pgx.Connect(t.Context(), tr.DatabaseURL())
	require.NoError(t, err)
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()", "CHECKPOINT"} {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	// Commits stay in memory while the WAL writer stands still; the crash ends it,
	// as it ends all of them.
	var walWriter int
	require.NoError(t, db.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&walWriter))
	require.NoError(t, syscall.Kill(walWriter, syscall.SIGSTOP))
	require.NoError(t, db.Close(t.Context()))
	require.NoError(t, tr.Drive(t.Context()))
	verdict, err := tr.Judge(t.Context())
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(verdict.Violations, func(v judge.Violation) bool { return v.Invariant == "accepted" }),
		"the check goes red: %d violations, not checked: %v", verdict.ViolationCount, verdict.Skipped)
}
