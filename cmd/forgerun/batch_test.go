package main

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// batchBody asks for one job of each kind.
func batchBody(kinds ...string) string {
	items := make([]string, len(kinds))
	for i, kind := range kinds {
		items[i] = execute(kind)
	}
	return `{"jobs":[` + strings.Join(items, ",") + `]}`
}

// submitBatch asks for a batch, which must be accepted, and gives its id.
func (u *user) submitBatch(api *proc, body string, headers ...string) string {
	u.s.t.Helper()
	a := u.expect(api, http.StatusAccepted, "POST", "/v1/jobs/batch", body, headers...)
	return a.text("batch_id")
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

// completions counts the events of a batch's completion.
func (s *stack) completions(id string) int {
	s.t.Helper()
	return s.count(`SELECT count(*) FROM client_events WHERE batch_id = $1 AND event_name = 'batch.completed'`, id)
}

func TestBatchWithMixedEnds(t *testing.T) {
	s, api, u := newWorking(t)
	all := u.stream(api, "/v1/events", "")
	_, ok := all.next()
	require.True(t, ok)

	body := `{"jobs":[` + strings.Join([]string{
		`{"item_id":"good","type":"EXECUTE","work_kind":"SUCCESS_FAST"}`,
		execute("FAIL_IMMEDIATE"),
		`{"item_id":"late","type":"EXECUTE","work_kind":"RUNS_OVER_TIMEOUT"}`,
		`{"item_id":"wrong","type":"EXECUTE","work_kind":"NO_SUCH_KIND"}`,
		execute("SUCCESS_FAST", `"colour":"blue"`),
		execute("SUCCESS_FAST", `"a\u0000":1`), // the error does not repeat a name that cannot be stored
	}, ",") + `]}`
	a := u.expect(api, http.StatusAccepted, "POST", "/v1/jobs/batch", body, "Idempotency-Key", "a-batch")
	id := a.text("batch_id")
	require.Equal(t, "/v1/batches/"+id, a.header.Get("Location"))
	items := a.value("jobs").([]any)
	require.Len(t, items, 6)
	for i, want := range []struct{ item, pointer string }{{"good", ""}, {"1", ""}, {"late", ""}, {"wrong", "/jobs/3/work_kind"},
		{"4", "/jobs/4/colour"}, {"5", "/jobs/5"}} {
		item := items[i].(map[string]any)
		require.Equal(t, want.item, item["item_id"])
		if want.pointer == "" {
			require.Equal(t, "QUEUED", item["state"])
			continue
		}
		failure := item["failure"].(map[string]any)
		require.Equal(t, "validation", failure["processingStage"])
		require.Equal(t, want.pointer, failure["violations"].([]any)[0].(map[string]any)["pointer"])
	}
	again := u.call(api, "POST", "/v1/jobs/batch", body, "Idempotency-Key", "a-batch")
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, a.body, again.body)

	done := u.awaitBatch(api, id)
	require.Equal(t, "COMPLETED_WITH_ERRORS", done.text("status"), done.body)
	require.EqualValues(t, 3, done.value("counts.refused"))
	document := u.call(api, "GET", "/v1/batches/"+id, "", "Accept", "application/problem+json")
	require.Equal(t, http.StatusOK, document.status)
	require.Equal(t, "application/problem+json", document.header.Get("Content-Type"))
	require.EqualValues(t, 207, document.value("status"), document.body)
	results := document.value("results").([]any)
	require.Len(t, results, 5, "failed items only")
	status := map[string]string{}
	for _, r := range results {
		item := r.(map[string]any)
		status[item["itemId"].(string)] = item["status"].(string)
	}
	require.Equal(t, map[string]string{"1": "FAILED", "late": "TIMED_OUT", "wrong": "FAILED", "4": "FAILED", "5": "FAILED"}, status)

	last := all.until("batch-completed")
	require.Equal(t, id, last[len(last)-1].text("jobId"))
	require.Equal(t, 1, s.completions(id))
	s.checkInvariants()
}

// The worker that ended the last job died before it could complete the batch.
func TestBatchWhoseCompletionWasLostIsCompleted(t *testing.T) {
	s, api, u := newService(t)
	worker := s.startWorker()
	// The last job ends, but its outcome cannot be written.
	unlock := s.lock(`LOCK TABLE client_events IN ACCESS EXCLUSIVE MODE`)
	id := u.submitBatch(api, batchBody("SUCCESS_FAST", "SUCCESS_FAST"))
	s.awaitCount("its jobs end", 2, `SELECT count(*) FROM jobs WHERE batch_id = $1 AND state = 'SUCCEEDED'`, id)
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
	s, api, u := killBeforeCommit(t, "events", "/v1/jobs/batch", []string{body}, key...) // the last that the transaction writes
	id := u.submitBatch(api, body, key...)
	require.Equal(t, "COMPLETED", u.awaitBatch(api, id).text("status"))
	require.Equal(t, 1, s.count(`SELECT count(*) FROM batches`))
	require.Equal(t, n, s.count(`SELECT count(*) FROM jobs`))
	s.checkInvariants()
}

const farAway = `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`
