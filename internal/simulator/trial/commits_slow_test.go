//go:build slow

package trial

import (
	"slices"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

const crashingLoad = `
duration: 10s
drain: 5s
arrival: {open: [{rate: 40/s}]}
mix: [{kind: SUCCESS_FAST}]
chaos: postgres=2s
service: {workers: "1", concurrency: 20, time_scale: 0.01}
`

// With synchronous_commit off, a crash of Postgres loses accepted jobs.
func TestTheJudgeSeesAPostgresThatLosesCommits(t *testing.T) {
	t.Parallel()
	tr := prepared(t, crashingLoad, Options{})
	db, err := pgx.Connect(t.Context(), tr.o.DatabaseURL)
	require.NoError(t, err)
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_commit = off", "SELECT pg_reload_conf()", "CHECKPOINT"} {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	// Without the WAL writer, asynchronous commits stay in memory, so the crash loses them.
	var walWriter int
	require.NoError(t, db.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&walWriter))
	require.NoError(t, syscall.Kill(walWriter, syscall.SIGSTOP))
	require.NoError(t, db.Close(t.Context()))
	require.NoError(t, tr.Drive(t.Context()))
	verdict, err := tr.Judge(t.Context())
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(verdict.Violations, func(v judge.Violation) bool { return v.Invariant == "accepted" }),
		"no violation of \"accepted\": %d violations, invariants %v", verdict.ViolationCount, verdict.Invariants)
}
