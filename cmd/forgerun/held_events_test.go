package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

// Somebody has an open write transaction in another database of the server: a client's stream says so,
// doctor names it, and nothing is lost or out of order.
func TestStreamTellsOfAnOpenTransaction(t *testing.T) {
	t.Parallel()
	postgres := repotest.Server(t)
	s := newStackOn(t, postgres.URL())
	api := s.startLeader()
	u := s.newUser(api)
	_, report := s.doctor(nil)
	require.Contains(t, report, "Postgres transactions: none of those that write is old")
	cfg, err := pgx.ParseConfig(postgres.URL())
	require.NoError(t, err)
	cfg.Database = "template1"
	other, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close(context.Background()) })
	_, err = other.Exec(t.Context(), `BEGIN; SELECT pg_current_xact_id()`)
	require.NoError(t, err)

	stream := u.stream(api, "/v1/events", "")
	position, ok := stream.next()
	require.True(t, ok)
	require.Empty(t, position.event)
	id := u.submit(api, execute("SUCCESS_FAST"))
	select {
	case note := <-stream.notes:
		require.Equal(t, "events wait for a transaction that is open in the database", note)
	case <-time.After(patience):
		require.FailNow(t, "the stream says nothing")
	}
	_, report = s.doctor(nil)
	require.Contains(t, report, fmt.Sprintf("pid %d", other.PgConn().PID()))
	require.Contains(t, report, "template1")

	_, err = other.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
	for _, name := range []string{"job-created", "job-queued"} {
		f, ok := stream.next()
		require.True(t, ok)
		require.Equal(t, []string{name, id}, []string{f.event, f.text("job_id")})
	}
	s.checkInvariants()
}
