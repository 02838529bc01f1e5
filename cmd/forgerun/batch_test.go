package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

func batchBody(kinds ...string) string {
	items := make([]string, len(kinds))
	for i, kind := range kinds {
		items[i] = execute(kind)
	}
	return `{"jobs":[` + strings.Join(items, ",") + `]}`
}

func (u *user) submitBatch(api *proc, body string, headers ...string) string {
	u.s.t.Helper()
	return u.expect(api, http.StatusAccepted, "POST", "/v1/jobs/batch", body, headers...).text("batch_id")
}

func (u *user) awaitBatch(api *proc, id string) answer {
	u.s.t.Helper()
	var a answer
	eventually(u.s.t, "the batch is complete", func() bool {
		a = u.call(api, "GET", "/v1/batches/"+id, "")
		return a.value("completed_at") != nil
	})
	return a
}

func (s *stack) completions(id string) int {
	s.t.Helper()
	return s.count(`SELECT count(*) FROM client_events WHERE batch_id = $1 AND event_name = 'batch.completed'`, id)
}

// The worker that ended the last job of a batch dies before it completes the batch.
func TestLostBatchCompletionIsRepaired(t *testing.T) {
	s, api, u := newService(t)
	worker := s.startWorker()
	// The lock stops the worker from storing the completion event.
	unlock := s.lock(`LOCK TABLE client_events IN ACCESS EXCLUSIVE MODE`)
	id := u.submitBatch(api, batchBody("SUCCESS_FAST", "SUCCESS_FAST"))
	s.awaitCount("the jobs of the batch end", 2, `SELECT count(*) FROM jobs WHERE batch_id = $1 AND state = 'SUCCEEDED'`, id)
	worker.kill()
	require.Zero(t, s.count(`SELECT count(*) FROM batches WHERE completed_at IS NOT NULL`))
	unlock()
	require.Equal(t, "COMPLETED", u.awaitBatch(api, id).text("status"))
	require.Equal(t, 1, s.completions(id))
	s.checkInvariants()
}

func TestAPIKilledWhileABatchIsStored(t *testing.T) {
	const n = 200
	body, key := batchBody(slices.Repeat([]string{"PAYLOAD_SMALL"}, n)...), []string{"Idempotency-Key", uuid.NewString()}
	s, api, u := killBeforeCommit(t, "events", "/v1/jobs/batch", []string{body}, key...) // the last table that the transaction writes
	id := u.submitBatch(api, body, key...)
	require.Equal(t, "COMPLETED", u.awaitBatch(api, id).text("status"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM batches`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM jobs`))
	s.checkInvariants()
}

const farAway = `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`
