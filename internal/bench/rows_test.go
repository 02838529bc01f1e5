package main

import (
	"context"
	"crypto/sha256"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/work"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func finishJob(t *testing.T, store *repo.Store) job.Job {
	t.Helper()
	catalogue := job.Catalogue{Types: job.Types, Kinds: job.Kinds(), MaxRuntime: time.Minute}
	definition, err := catalogue.Define(job.Execute, job.PayloadSmall, time.Now(), nil)
	require.NoError(t, err)
	newID := func() job.ID { return job.ID(uuid.Must(uuid.NewV7())) }
	j := job.Job{
		ID: newID(), ClientID: newID(), Type: job.Execute, WorkKind: job.PayloadSmall, Definition: &definition, MaxAttempts: 4,
		Language: "en", RequestID: uuid.NewString(),
	}
	_, err = store.InsertJob(t.Context(), job.Submission{Job: j, RequestHash: sha256.Sum256(nil)})
	require.NoError(t, err)
	leases, worker := store.NewLeases(), newID()
	defer leases.Close()
	require.NoError(t, leases.Register(t.Context(), worker, "w", 1, time.Hour))
	claim, _, err := store.Claim(t.Context(), worker, j.ID, 1)
	require.NoError(t, err)
	require.NotNil(t, claim)
	_, err = store.Start(t.Context(), claim.ClaimID)
	require.NoError(t, err)
	result, err := work.New(work.Config{Limit: time.Minute}).Run(t.Context(), definition, 1, job.Observer{})
	require.NoError(t, err)
	_, err = store.Finish(t.Context(), job.Finish{ClaimID: claim.ClaimID, State: job.Succeeded, Result: result})
	require.NoError(t, err)
	return j
}

func TestFloorWritesTheRowsOfTheService(t *testing.T) {
	t.Parallel()
	url := repotest.URL(t)
	store := repotest.OpenURL(t, url)
	finished := finishJob(t, store)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	id := uuid.Must(uuid.NewV7())
	for _, step := range []string{"insert", "claim", "start", "finish"} {
		require.NoError(t, execStep(t.Context(), conn, step, []uuid.UUID{id}, `{"work_kind": "PAYLOAD_SMALL"}`, `{}`))
	}
	for _, table := range []string{"jobs", "events", "reports", "results"} {
		var ours, theirs int
		sql := "SELECT count(*) FILTER (WHERE job_id = $1), count(*) FILTER (WHERE job_id = $2) FROM " + table
		require.NoError(t, conn.QueryRow(t.Context(), sql, id, uuid.UUID(finished.ID)).Scan(&ours, &theirs))
		require.Equal(t, theirs, ours, table)
		require.Positive(t, ours, table)
	}
	got, err := store.Job(t.Context(), job.ID(uuid.Max), job.ID(id))
	require.NoError(t, err)
	require.Equal(t, job.Succeeded, got.State)
}
